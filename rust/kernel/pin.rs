// SPDX-License-Identifier: GPL-2.0

//! A small piece of user memory that is pinned and written by the kernel in any context.
//!
//! C header: `include/linux/mm.h`.

use crate::bindings;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

/// `LEN` bytes of user memory, pinned for long and writable. The process may write to it at any
/// time, so nothing is ever read from it.
///
/// # Invariants
///
/// - `page` is pinned, once, by `pin_user_pages_fast` with `FOLL_WRITE`.
/// - `start` is the kernel address of the `LEN` bytes, all inside `page`, 8-byte aligned.
pub struct PinnedUser<const LEN: usize> {
    page: NonNull<bindings::page>,
    start: NonNull<u8>,
}

// SAFETY: A pin belongs to no thread.
unsafe impl<const LEN: usize> Send for PinnedUser<LEN> {}
// SAFETY: All access is by volatile writes; the process races with us anyway.
unsafe impl<const LEN: usize> Sync for PinnedUser<LEN> {}

impl<const LEN: usize> PinnedUser<LEN> {
    /// Pins the memory at `address` of the current process, which must be a multiple of `LEN`;
    /// `LEN` divides the page size. May sleep.
    ///
    /// Errors: `EINVAL` for the alignment, `EFAULT` when the page is not there or not writable.
    pub fn new(address: usize) -> Result<Self> {
        const { assert!(LEN != 0 && LEN % 8 == 0 && PAGE_SIZE % LEN == 0) };
        if address % LEN != 0 {
            return Err(EINVAL);
        }
        // The mm core has an error of its own for the last page of all addresses.
        address.checked_add(PAGE_SIZE).ok_or(EFAULT)?;
        let mut page = null_mut();
        // SAFETY: `page` has room for one pointer.
        let pinned = unsafe {
            bindings::pin_user_pages_fast(
                address & !(PAGE_SIZE - 1),
                1,
                bindings::FOLL_WRITE | bindings::FOLL_LONGTERM,
                &mut page,
            )
        };
        if pinned < 0 {
            to_result(pinned)?;
        }
        let page = NonNull::new(page).filter(|_| pinned == 1).ok_or(EFAULT)?;
        // SAFETY: The page is pinned; on a 64-bit kernel every page has an address.
        let base = unsafe { bindings::nvfs_helper_page_address(page.as_ptr()) };
        // SAFETY: The offset is inside the page, and so are `LEN` bytes from there, as both are
        // multiples of `LEN`.
        let start = unsafe { base.cast::<u8>().add(address & (PAGE_SIZE - 1)) };
        let start = NonNull::new(start).ok_or(EFAULT)?;
        // INVARIANT: Pinned above; `start` is inside.
        Ok(Self { page, start })
    }

    /// Stores an integer at byte `offset`, a multiple of its size; an offset outside is ignored.
    /// Callable in any context. Nothing is said of the order of two stores, see [`publish`].
    pub fn store<T: Integer>(&self, offset: usize, value: T) {
        let size = size_of::<T>();
        if offset % size == 0 && offset <= LEN - size {
            // SAFETY: By the type invariant and the check.
            unsafe {
                self.start
                    .as_ptr()
                    .add(offset)
                    .cast::<T>()
                    .write_volatile(value)
            }
        }
    }
}

impl<const LEN: usize> Drop for PinnedUser<LEN> {
    fn drop(&mut self) {
        let mut page = self.page.as_ptr();
        // SAFETY: By the type invariant.
        unsafe { bindings::unpin_user_pages_dirty_lock(&mut page, 1, true) }
    }
}

/// Integers that [`PinnedUser::store`] can store; any bits are valid.
pub trait Integer: Copy + private::Sealed {}

mod private {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl private::Sealed for $t {}
        impl Integer for $t {}
    )* };
}

integers!(u16 u32 u64 i64);

/// A full write barrier: all stores before it, also those to device memory, are visible before
/// those after it.
pub fn publish() {
    // SAFETY: A barrier has no preconditions.
    unsafe { bindings::nvfs_helper_wmb() }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_pin)]
mod tests {
    use super::*;
    use core::mem::ManuallyDrop;
    use kernel::page::Page;

    const LEN: usize = 64;
    const START: usize = 2 * LEN;

    #[test]
    fn nothing_is_stored_outside() -> Result {
        let page = Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?;
        let raw = NonNull::new(page.as_ptr().cast()).ok_or(EINVAL)?;
        // SAFETY: On a 64-bit kernel every page has an address.
        let base = unsafe { bindings::nvfs_helper_page_address(raw.as_ptr()) };
        let start = NonNull::new(base.cast::<u8>().wrapping_add(START)).ok_or(EINVAL)?;
        // INVARIANT: The page is ours; nobody pinned it, and so nobody may drop this.
        let memory = ManuallyDrop::new(PinnedUser::<LEN> { page: raw, start });
        for distance in 0..2 * PAGE_SIZE {
            for offset in [distance, usize::MAX - distance] {
                memory.store(offset, u64::MAX);
                memory.store(offset, u32::MAX);
                memory.store(offset, u16::MAX);
            }
        }
        for at in 0..PAGE_SIZE {
            let mut byte = 0u8;
            // SAFETY: There is room for one byte, and nobody else uses the page.
            unsafe { page.read_raw(&mut byte, at, 1)? };
            let inside = (START..START + LEN).contains(&at);
            assert_eq!(byte, if inside { 0xff } else { 0 });
        }
        Ok(())
    }
}
