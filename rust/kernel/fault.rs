// SPDX-License-Identifier: GPL-2.0

//! Fault points: places that an administrator can make fail, in kernels with
//! `CONFIG_FAULT_INJECTION`. In all others they are no code at all.
//!
//! C header: `include/linux/fault-inject.h`.

#[cfg(CONFIG_FAULT_INJECTION)]
use {
    crate::bindings,
    core::ptr::NonNull, //
};

/// What can be made to fail, by the name in debugfs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// `dma_error`
    Dma,
    /// `rw_verify_area_error`
    RwVerifyArea,
    /// `end_fence_get_user_pages_fast_error`
    PinFence,
    /// `invalid_p2p_get_page`
    P2pPage,
    /// `io_transit_state_fail`
    State,
    /// `pin_shadow_pages_error`
    PinShadow,
    /// `vm_insert_page_error`
    InsertPage,
    /// `p2p_get_pages_error`
    GetPages,
    /// `p2pdma_add_resource_error`
    MakePages,
    /// `page_cache_flush_error`
    FlushCache,
    /// `file_io_error`
    FileIo,
}

/// Whether it shall fail now. Callable in any context.
#[inline(always)]
pub fn fires(point: Point) -> bool {
    #[cfg(CONFIG_FAULT_INJECTION)]
    {
        let fault = match point {
            Point::Dma => bindings::nvfs_fault_NVFS_FAULT_DMA,
            Point::RwVerifyArea => bindings::nvfs_fault_NVFS_FAULT_RW_VERIFY_AREA,
            Point::PinFence => bindings::nvfs_fault_NVFS_FAULT_PIN_FENCE,
            Point::P2pPage => bindings::nvfs_fault_NVFS_FAULT_P2P_PAGE,
            Point::State => bindings::nvfs_fault_NVFS_FAULT_STATE,
            Point::PinShadow => bindings::nvfs_fault_NVFS_FAULT_PIN_SHADOW,
            Point::InsertPage => bindings::nvfs_fault_NVFS_FAULT_INSERT_PAGE,
            Point::GetPages => bindings::nvfs_fault_NVFS_FAULT_GET_PAGES,
            Point::MakePages => bindings::nvfs_fault_NVFS_FAULT_MAKE_PAGES,
            Point::FlushCache => bindings::nvfs_fault_NVFS_FAULT_FLUSH_CACHE,
            Point::FileIo => bindings::nvfs_fault_NVFS_FAULT_FILE_IO,
        };
        // SAFETY: Any number will do.
        unsafe { bindings::nvfs_helper_should_fail(fault) }
    }
    #[cfg(not(CONFIG_FAULT_INJECTION))]
    {
        let _ = point;
        false
    }
}

/// The directory `nvfs_inject_fault` in debugfs. Dropping it removes it.
///
/// # Invariants
///
/// It is what `nvfs_helper_faults_create` gave, and not yet removed.
pub struct Directory {
    #[cfg(CONFIG_FAULT_INJECTION)]
    dir: Option<NonNull<bindings::dentry>>,
}

// SAFETY: debugfs has its own locks.
unsafe impl Send for Directory {}
// SAFETY: As above.
unsafe impl Sync for Directory {}

impl Directory {
    /// Makes it, if it can be made. May sleep.
    pub fn new() -> Self {
        // INVARIANT: Just made.
        Self {
            // SAFETY: Once at a time, by the module's init.
            #[cfg(CONFIG_FAULT_INJECTION)]
            dir: NonNull::new(unsafe { bindings::nvfs_helper_faults_create() }),
        }
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        #[cfg(CONFIG_FAULT_INJECTION)]
        if let Some(dir) = self.dir {
            // SAFETY: By the type invariant; an error pointer is ignored.
            unsafe { bindings::nvfs_helper_faults_remove(dir.as_ptr()) }
        }
    }
}
