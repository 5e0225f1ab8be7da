// SPDX-License-Identifier: GPL-2.0

//! The GPU driver's functions, held while anybody has pinned memory.

use crate::{
    bindings,
    modules,
    symbol::Symbol, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    },
};

/// # Safety
///
/// To be called once, before any [`Driver::get`].
pub(super) unsafe fn init() {
    // SAFETY: By the safety requirements.
    unsafe { DRIVER.init() };
}

global_lock! {
    // SAFETY: Initialized by `init`, before any use.
    unsafe(uninit) static DRIVER: Mutex<Shared> = Shared { users: 0, functions: None, absent: None };
}

/// The GPU driver's functions, held while there are users of them.
struct Shared {
    users: usize,
    functions: Option<Arc<Functions>>,
    /// The count of loaded modules when there was no driver: it is not looked for again before
    /// another has come. A look that finds the proprietary driver makes the kernel log lines.
    absent: Option<u32>,
}

/// NVIDIA's functions: pairs that are complete, and the modules they are in.
pub(super) struct Functions {
    pub(super) legacy: Option<Legacy>,
    pub(super) persistent: Option<Persistent>,
    pub(super) dma: Option<Dma>,
    _symbols: [Option<Symbol>; 8],
}

#[derive(Clone, Copy)]
pub(super) struct Legacy {
    pub(super) get_pages: GetPages,
    pub(super) put_pages: PutPages,
    pub(super) free_page_table: FreePageTable,
}

#[derive(Clone, Copy)]
pub(super) struct Persistent {
    pub(super) get_pages: GetPagesPersistent,
    pub(super) put_pages: PutPagesPersistent,
}

#[derive(Clone, Copy)]
pub(super) struct Dma {
    pub(super) map_pages: MapPages,
    pub(super) unmap_pages: UnmapPages,
    pub(super) free_mapping: FreeMapping,
}

pub(super) type PageTable = bindings::nv_p2p_page_table;
pub(super) type DmaMapping = bindings::nv_p2p_dma_mapping;
type FreeCallback = unsafe extern "C" fn(*mut c_void);
pub(super) type GetPages = unsafe extern "C" fn(
    u64,
    u32,
    u64,
    u64,
    *mut *mut PageTable,
    Option<FreeCallback>,
    *mut c_void,
) -> c_int;
pub(super) type PutPages = unsafe extern "C" fn(u64, u32, u64, *mut PageTable) -> c_int;
pub(super) type GetPagesPersistent =
    unsafe extern "C" fn(u64, u64, *mut *mut PageTable, u32) -> c_int;
pub(super) type PutPagesPersistent = unsafe extern "C" fn(u64, *mut PageTable, u32) -> c_int;
pub(super) type FreePageTable = unsafe extern "C" fn(*mut PageTable) -> c_int;
pub(super) type MapPages =
    unsafe extern "C" fn(*mut bindings::pci_dev, *mut PageTable, *mut *mut DmaMapping) -> c_int;
pub(super) type UnmapPages =
    unsafe extern "C" fn(*mut bindings::pci_dev, *mut PageTable, *mut DmaMapping) -> c_int;
pub(super) type FreeMapping = unsafe extern "C" fn(*mut DmaMapping) -> c_int;

// The types above are those of the header.
const _: [bindings::nv_p2p_get_pages_fn; 0] = [None::<GetPages>; 0];
const _: [bindings::nv_p2p_put_pages_fn; 0] = [None::<PutPages>; 0];
const _: [bindings::nv_p2p_get_pages_persistent_fn; 0] = [None::<GetPagesPersistent>; 0];
const _: [bindings::nv_p2p_put_pages_persistent_fn; 0] = [None::<PutPagesPersistent>; 0];
const _: [bindings::nv_p2p_free_page_table_fn; 0] = [None::<FreePageTable>; 0];
const _: [bindings::nv_p2p_dma_map_pages_fn; 0] = [None::<MapPages>; 0];
const _: [bindings::nv_p2p_dma_unmap_pages_fn; 0] = [None::<UnmapPages>; 0];
const _: [bindings::nv_p2p_free_dma_mapping_fn; 0] = [None::<FreeMapping>; 0];

impl Functions {
    fn look_up() -> Self {
        let get_pages = Symbol::get(c"nvidia_p2p_get_pages");
        let put_pages = Symbol::get(c"nvidia_p2p_put_pages");
        let get_persistent = Symbol::get(c"nvidia_p2p_get_pages_persistent");
        let put_persistent = Symbol::get(c"nvidia_p2p_put_pages_persistent");
        let free_page_table = Symbol::get(c"nvidia_p2p_free_page_table");
        let legacy = match (&get_pages, &put_pages, &free_page_table) {
            (Some(get), Some(put), Some(free)) => Some(Legacy {
                // SAFETY: The GPU driver's function of this name has this type.
                get_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, GetPages>(get.address())
                },
                // SAFETY: As above.
                put_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, PutPages>(put.address())
                },
                // SAFETY: As above.
                free_page_table: unsafe {
                    core::mem::transmute::<NonNull<c_void>, FreePageTable>(free.address())
                },
            }),
            _ => None,
        };
        let persistent = match (&get_persistent, &put_persistent) {
            (Some(get), Some(put)) => Some(Persistent {
                // SAFETY: The GPU driver's function of this name has this type.
                get_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, GetPagesPersistent>(get.address())
                },
                // SAFETY: As above.
                put_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, PutPagesPersistent>(put.address())
                },
            }),
            _ => None,
        };
        let map_pages = Symbol::get(c"nvidia_p2p_dma_map_pages");
        let unmap_pages = Symbol::get(c"nvidia_p2p_dma_unmap_pages");
        let free_mapping = Symbol::get(c"nvidia_p2p_free_dma_mapping");
        let dma = match (&map_pages, &unmap_pages, &free_mapping) {
            (Some(map), Some(unmap), Some(free)) => Some(Dma {
                // SAFETY: The GPU driver's function of this name has this type.
                map_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, MapPages>(map.address())
                },
                // SAFETY: As above.
                unmap_pages: unsafe {
                    core::mem::transmute::<NonNull<c_void>, UnmapPages>(unmap.address())
                },
                // SAFETY: As above.
                free_mapping: unsafe {
                    core::mem::transmute::<NonNull<c_void>, FreeMapping>(free.address())
                },
            }),
            _ => None,
        };
        Self {
            legacy,
            persistent,
            dma,
            _symbols: [
                get_pages,
                put_pages,
                get_persistent,
                put_persistent,
                free_page_table,
                map_pages,
                unmap_pages,
                free_mapping,
            ],
        }
    }
}

/// One user of the GPU driver's functions, which cannot be unloaded meanwhile.
pub(super) struct Driver(pub(super) Arc<Functions>);

impl Driver {
    /// Holds the driver. `ENODEV` when it is not there, or lacks too much.
    pub(super) fn get() -> Result<Self> {
        let mut shared = DRIVER.lock();
        let functions = match &shared.functions {
            Some(functions) => functions.clone(),
            None => {
                let loaded = modules::changes();
                if shared.absent == Some(loaded) {
                    return Err(ENODEV);
                }
                let functions = Functions::look_up();
                if functions.legacy.is_none() && functions.persistent.is_none() {
                    shared.absent = Some(loaded);
                    return Err(ENODEV);
                }
                shared.absent = None;
                let functions = Arc::new(functions, GFP_KERNEL)?;
                shared.functions = Some(functions.clone());
                functions
            }
        };
        shared.users += 1;
        Ok(Self(functions))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut shared = DRIVER.lock();
        // OVERFLOW: `get` has counted this user.
        shared.users -= 1;
        if shared.users == 0 {
            shared.functions = None;
        }
    }
}
