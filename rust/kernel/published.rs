// SPDX-License-Identifier: GPL-2.0

//! A value that is read in any context without a lock, and replaced as a whole.
//!
//! C header: `include/linux/rcupdate.h`.

use core::{
    marker::PhantomData,
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu,
        Arc, //
    },
};

/// A value that is replaced by RCU.
///
/// # Invariants
///
/// The pointer is from [`Arc::into_raw`], and that reference is given up only when no reader that
/// could have seen the pointer is left.
pub struct Published<T> {
    current: Atomic<*mut T>,
    _owns: PhantomData<Arc<T>>,
}

// SAFETY: It is a reference on a `T` that other threads read and drop.
unsafe impl<T: Send + Sync> Send for Published<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T> Published<T> {
    /// Begins with `value`.
    pub fn new(value: Arc<T>) -> Self {
        // INVARIANT: Just made, and nobody has seen it.
        Self {
            current: Atomic::new(Arc::into_raw(value).cast_mut()),
            _owns: PhantomData,
        }
    }

    /// Reads the value of this moment. `read` must not sleep. Callable in any context.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let guard = rcu::read_lock();
        // SAFETY: By the type invariant it is valid for as long as `guard` lives.
        let result = read(unsafe { &*self.current.load(Acquire) });
        drop(guard);
        result
    }

    /// Puts another value in its place. Waits until nobody reads the old one. May sleep.
    pub fn replace(&self, value: Arc<T>) {
        let new = Arc::into_raw(value).cast_mut();
        // INVARIANT: Readers come to see the new one, which is ours.
        let old = self.current.xchg(new, Full);
        // SAFETY: No requirements.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the type invariant it is a reference of ours; it can't be found any more, and
        // those who had found it are done.
        drop(unsafe { Arc::from_raw(old.cast_const()) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let last = self.current.load(Acquire);
        // SAFETY: By the type invariant; readers borrow `self`, so there are none.
        drop(unsafe { Arc::from_raw(last.cast_const()) });
    }
}

/// A value that is there for a while, for those who have nothing to find it by. Use it as a `static`.
///
/// # Invariants
///
/// The pointer is null, or from [`Arc::into_raw`] with a reference that the one [`Offer`] gives up
/// only when no reader that could have seen the pointer is left.
pub struct Offered<T> {
    current: AtomicPtr<T>,
    _owns: PhantomData<Arc<T>>,
}

// SAFETY: It is a reference on a `T` that other threads read and drop.
unsafe impl<T: Send + Sync> Send for Offered<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Offered<T> {}

impl<T> Offered<T> {
    /// Nothing is offered.
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> Self {
        // INVARIANT: Null.
        Self {
            current: AtomicPtr::new(null_mut()),
            _owns: PhantomData,
        }
    }

    /// Offers a value until the result is dropped. Fails with `EBUSY` if another is offered.
    pub fn offer(&'static self, value: Arc<T>) -> Result<Offer<T>> {
        let new = Arc::into_raw(value).cast_mut();
        // INVARIANT: The reference is the offer's.
        let exchanged =
            self.current
                .compare_exchange(null_mut(), new, Ordering::Release, Ordering::Relaxed);
        if exchanged.is_err() {
            // SAFETY: Given up just now, and not seen by others.
            drop(unsafe { Arc::from_raw(new.cast_const()) });
            return Err(EBUSY);
        }
        Ok(Offer(self))
    }

    /// Reads the value, if there is one. `read` must not sleep. Callable in any context.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let guard = rcu::read_lock();
        // SAFETY: By the type invariant it is null, or valid for as long as `guard` lives.
        let result = unsafe { self.current.load(Ordering::Acquire).as_ref() }.map(read);
        drop(guard);
        result
    }
}

/// Who offers a value. Dropping it waits until nobody reads it any more.
///
/// # Invariants
///
/// The value is this one's.
pub struct Offer<T: 'static>(&'static Offered<T>);

impl<T> Drop for Offer<T> {
    fn drop(&mut self) {
        let old = self.0.current.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: No requirements.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the type invariants a reference of ours that nobody reads by any more.
        drop(unsafe { Arc::from_raw(old.cast_const()) });
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_published)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    static GONE: AtomicUsize = AtomicUsize::new(0);
    static OFFERED: Offered<Value> = Offered::new();

    /// Counts its end.
    struct Value(u32);

    impl Drop for Value {
        fn drop(&mut self) {
            GONE.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn value(number: u32) -> Result<Arc<Value>> {
        Ok(Arc::new(Value(number), GFP_KERNEL)?)
    }

    fn gone() -> usize {
        GONE.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn replaced_values_go_after_their_readers() -> Result {
        gone();
        let published = Published::new(value(1)?);
        assert_eq!(published.read(|value| value.0), 1);
        published.replace(value(2)?);
        assert_eq!(gone(), 1);
        assert_eq!(published.read(|value| value.0), 2);
        drop(published);
        assert_eq!(gone(), 1);
        Ok(())
    }

    #[test]
    fn one_offer_at_a_time() -> Result {
        gone();
        assert!(OFFERED.read(|_| ()).is_none());
        let offer = OFFERED.offer(value(1)?)?;
        assert!(matches!(OFFERED.offer(value(2)?), Err(e) if e == EBUSY));
        assert_eq!(gone(), 1);
        assert_eq!(OFFERED.read(|value| value.0), Some(1));
        drop(offer);
        assert_eq!(gone(), 1);
        assert!(OFFERED.read(|_| ()).is_none());
        drop(OFFERED.offer(value(3)?)?);
        assert_eq!(gone(), 1);
        Ok(())
    }
}
