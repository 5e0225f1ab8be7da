// SPDX-License-Identifier: GPL-2.0

//! Stands in for the `kernel` crate in the host tests: as much of it as the files under test use,
//! made of the model checker's own atomics and locks. Everything here exists only inside
//! `loom::model`.
//!
//! The orderings are those of the kernel; `Full` becomes `SeqCst`, which the checker takes for
//! acquire and release.

pub mod error;
pub mod init;
pub mod prelude;
pub mod rbtree;
pub mod sync;

pub mod time {
    pub type Msecs = u32;
}

pub mod types {
    use core::{cell::UnsafeCell, mem::MaybeUninit};

    /// Memory that others write to.
    #[repr(transparent)]
    pub struct Opaque<T>(UnsafeCell<MaybeUninit<T>>);

    impl<T> Opaque<T> {
        pub const fn uninit() -> Self {
            Self(UnsafeCell::new(MaybeUninit::uninit()))
        }

        pub const fn get(&self) -> *mut T {
            UnsafeCell::get(&self.0).cast()
        }

        pub const fn cast_into(this: *const Self) -> *mut T {
            this.cast_mut().cast()
        }

        pub const fn cast_from(this: *const T) -> *const Self {
            this.cast()
        }
    }
}

/// From a pointer to a field to one to its struct.
#[macro_export]
macro_rules! container_of {
    ($field_ptr:expr, $container:ty, $field:ident) => {
        $field_ptr
            .cast::<u8>()
            .sub(::core::mem::offset_of!($container, $field))
            .cast::<$container>()
    };
}
