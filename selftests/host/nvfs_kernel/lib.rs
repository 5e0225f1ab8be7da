// SPDX-License-Identifier: GPL-2.0

//! Stands in for the module's own kernel layer in the host tests: files of it as they are, and what
//! these need of C.

#[path = "../../../rust/kernel/kiocb.rs"]
pub mod kiocb;
#[path = "../../../rust/kernel/reaper.rs"]
pub mod reaper;

pub mod bindings;
pub mod completion;
pub mod context;
pub mod file;
pub mod gpu;
pub mod pin;

pub mod alloc {
    pub use kernel::prelude::GFP_KERNEL as GFP_CHARGED;
}

pub mod fault {
    pub enum Point {
        FileIo,
        PinFence,
    }

    pub fn fires(_point: Point) -> bool {
        false
    }
}

pub mod shadow {
    use crate::{bindings::iov_iter, context, reaper::Reaped};
    use core::{
        mem::MaybeUninit,
        ptr::{null_mut, NonNull},
    };
    use kernel::sync::aref::ARef;
    use loom::sync::atomic::{AtomicPtr, Ordering};

    /// The mark of one page, as `Space::find` reads it.
    pub struct Mark<T>(AtomicPtr<Reaped<T>>);

    /// Shadow memory that a transfer uses.
    pub struct Lent;

    impl Lent {
        pub(crate) fn len(&self) -> usize {
            4096
        }

        pub(crate) fn iterate(&self, _write: bool, _iter: &mut MaybeUninit<iov_iter>) {}
    }

    impl<T: Send + Sync + 'static> Mark<T> {
        pub fn new() -> Self {
            Self(AtomicPtr::new(null_mut()))
        }

        pub fn set(&self, owner: &ARef<Reaped<T>>) {
            let raw = ARef::into_raw(owner.clone());
            self.0.store(raw.as_ptr(), Ordering::Release);
            // SAFETY: Made above.
            drop(unsafe { ARef::from_raw(raw) });
        }

        pub fn clear(&self) {
            self.0.store(null_mut(), Ordering::Release);
        }

        pub fn find(&self) -> Option<ARef<Reaped<T>>> {
            let reader = context::read();
            let owner = NonNull::new(self.0.load(Ordering::Acquire))?;
            // SAFETY: The mark is taken off before the last grace period.
            let owner = unsafe { Reaped::try_get(owner) };
            drop(reader);
            owner
        }
    }
}

pub mod p2pdma {
    /// The pages of some GPU memory: tells when they go.
    pub struct Memory(pub Box<dyn Fn() + Send + Sync>);

    impl Memory {
        pub(crate) unsafe fn iterate(
            &self,
            _write: bool,
            _part: (usize, usize, usize),
            _scheduled: bool,
            _iter: &mut core::mem::MaybeUninit<crate::bindings::iov_iter>,
        ) -> Option<u16> {
            None
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            (self.0)()
        }
    }
}
