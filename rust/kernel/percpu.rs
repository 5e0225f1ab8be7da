// SPDX-License-Identifier: GPL-2.0

//! Per-CPU counters.
//!
//! C header: `include/linux/percpu.h`.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` counters of 64 bits, one copy for each CPU: adding touches no shared cache line.
///
/// # Invariants
///
/// The pointer is a per-CPU allocation of `N` `u64`.
pub struct Counters<const N: usize>(NonNull<u64>);

// SAFETY: Per-CPU memory belongs to no thread.
unsafe impl<const N: usize> Send for Counters<N> {}
// SAFETY: Each access is a single per-CPU operation.
unsafe impl<const N: usize> Sync for Counters<N> {}

impl<const N: usize> Counters<N> {
    /// All zero. May sleep. Fails with `ENOMEM`.
    pub fn new() -> Result<Self> {
        // SAFETY: Only allocates.
        let counters = unsafe { bindings::nvfs_helper_alloc_percpu_u64s(N) };
        // INVARIANT: Just allocated, zeroed by the allocator.
        NonNull::new(counters).map(Self).ok_or(ENOMEM)
    }

    /// Adds to counter `index`; one that does not exist is ignored. Callable in any context.
    #[inline]
    pub fn add(&self, index: usize, value: u64) {
        if index < N {
            // SAFETY: By the type invariant and the check.
            unsafe { bindings::nvfs_helper_percpu_add(self.0.as_ptr(), index, value) }
        }
    }

    /// The sum over all CPUs, modulo 2^64; exact when nobody adds meanwhile.
    pub fn sum(&self, index: usize) -> u64 {
        if index < N {
            // SAFETY: By the type invariant and the check.
            unsafe { bindings::nvfs_helper_percpu_sum(self.0.as_ptr(), index) }
        } else {
            0
        }
    }

    /// Back to zero. What others add meanwhile may be lost or stay.
    pub fn clear(&self, index: usize) {
        if index < N {
            // SAFETY: By the type invariant and the check.
            unsafe { bindings::nvfs_helper_percpu_clear(self.0.as_ptr(), index) }
        }
    }
}

impl<const N: usize> Drop for Counters<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::free_percpu(self.0.as_ptr().cast()) }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_percpu)]
mod tests {
    use super::*;
    use crate::reaper::{
        Deferred,
        Reaped,
        Reaper, //
    };
    use kernel::sync::{
        aref::ARef,
        Arc, //
    };

    /// Adds from the work queue, on whatever CPU.
    struct Adder(Arc<Counters<2>>);

    impl Deferred for Adder {
        fn deferred(this: ARef<Reaped<Self>>) {
            for _ in 0..1000 {
                this.0.add(1, 3);
            }
        }
    }

    #[test]
    fn sums_are_those_of_all_cpus() -> Result {
        let counters = Arc::new(Counters::<2>::new()?, GFP_KERNEL)?;
        let reaper = Reaper::new(c"kunit")?;
        for _ in 0..8 {
            let adder = Reaped::new(&reaper.handle(), Adder(counters.clone()))?;
            assert!(Reaped::later(adder).is_ok());
        }
        for _ in 0..1000 {
            counters.add(1, 1);
        }
        drop(reaper);
        assert_eq!(counters.sum(0), 0);
        assert_eq!(counters.sum(1), 25_000);
        counters.add(0, 1);
        counters.clear(1);
        assert_eq!(counters.sum(1), 0);
        assert_eq!(counters.sum(0), 1);
        Ok(())
    }

    #[test]
    fn counters_wrap_and_have_an_end() -> Result {
        let counters = Counters::<1>::new()?;
        counters.add(0, u64::MAX);
        counters.add(0, 3);
        assert_eq!(counters.sum(0), 2);
        counters.add(1, 1);
        counters.clear(1);
        assert_eq!(counters.sum(1), 0);
        assert_eq!(counters.sum(0), 2);
        Ok(())
    }
}
