// SPDX-License-Identifier: GPL-2.0

//! Memory that stands for device memory in user space: zeroed pages, made when first touched and
//! charged to the memory cgroup of the process that touches them.
//!
//! C header: `include/linux/gfp.h`.

use crate::bindings;
use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Mutex, //
    },
};

/// A counted reference on a page of ours.
///
/// # Invariants
///
/// One reference on the page is owned.
pub struct SharedPage(NonNull<bindings::page>);

// SAFETY: Page references belong to no thread.
unsafe impl Send for SharedPage {}
// SAFETY: As above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    fn new() -> Result<Self> {
        // SAFETY: Only allocates.
        let page = unsafe { bindings::nvfs_helper_alloc_user_page() };
        // INVARIANT: A new page has one reference.
        NonNull::new(page).map(Self).ok_or(ENOMEM)
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut bindings::page {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Clone for SharedPage {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant the page is live.
        unsafe { bindings::nvfs_helper_get_page(self.0.as_ptr()) };
        // INVARIANT: Just taken.
        Self(self.0)
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_put_page(self.0.as_ptr()) }
    }
}

/// A run of pages, each made when it is first asked for. Costs no memory until then.
#[pin_data]
pub struct LazyPages {
    len: usize,
    #[pin]
    pages: Mutex<KVVec<Option<SharedPage>>>,
}

impl LazyPages {
    /// `len` pages.
    pub fn new(len: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            len,
            pages <- new_mutex!(KVVec::new()),
        })
    }

    /// The page at `index`. May sleep. Errors: `EFAULT` past the end, `ENOMEM`.
    pub fn page(&self, index: usize) -> Result<SharedPage> {
        if index >= self.len {
            return Err(EFAULT);
        }
        let mut pages = self.pages.lock();
        if pages.is_empty() {
            pages.reserve(self.len, GFP_KERNEL_ACCOUNT)?;
            for _ in 0..self.len {
                pages.push(None, GFP_KERNEL_ACCOUNT)?;
            }
        }
        let slot = pages.get_mut(index).ok_or(EFAULT)?;
        if let Some(page) = slot {
            return Ok(page.clone());
        }
        Ok(slot.insert(SharedPage::new()?).clone())
    }
}
