// SPDX-License-Identifier: GPL-2.0

//! The tables of functions by which storage drivers turn shadow pages in their requests into bus
//! addresses of the device memory behind them, and their registration with such drivers.
//!
//! A page is resolved to its owner and its place in the owner's shadow memory (see
//! [`shadow`](crate::shadow)); the owner says where that is for a peer. A segment that was handed
//! out holds a reference on its owner until it is given back, however late.
//!
//! Nothing here sleeps, but [`Registration`].
//!
//! C headers: `include/nvfs_dma_ops.h` (ours), `include/linux/blk-mq-dma.h`,
//! `include/linux/scatterlist.h`. Contract sections 14 to 17.

use crate::{
    bindings,
    pci::Function,
    reaper::Reaped,
    shadow::{
        Place,
        Space, //
    },
    symbol::{
        self,
        Symbol, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

mod iterator;
mod list;
pub mod pairs;
mod request;
mod shared;

pub use list::{
    Flavour,
    Nvme,
    Plain, //
};
use pairs::Kind;
pub use pairs::Pair;
pub use shared::Shares;

/// The most payload of one request, in bytes.
const MAX_PAYLOAD: u32 = bindings::NVFS_MAX_REQUEST_BYTES;

const IO_ERROR: c_int = bindings::NVFS_IO_ERROR;
const NOT_GPU: c_int = bindings::NVFS_NOT_GPU;
const NO_INDEX: c_uint = bindings::NVFS_NO_INDEX;

/// What can be wrong with what a storage driver asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Shadow pages and others in one request.
    Mixed,
    /// The list has no room for the segments.
    ListFull,
    /// A segment is given back that was not taken.
    NotTaken,
    /// Not part of a transfer, or no address for that peer.
    NoAddress,
}

/// A contiguous piece of device memory, and its address for somebody.
#[derive(Clone, Copy)]
pub struct Run {
    /// The address of its first byte.
    pub address: u64,
    /// Its length in bytes, at least 1.
    pub len: usize,
    /// Whether it may be one segment with what comes before it.
    pub joins: bool,
}

/// An object with shadow memory, and the device memory that this stands for.
///
/// All functions are called in any context. Places are in bytes from the start of the shadow
/// memory; only those of the transfer under way have device memory.
pub trait Target: Send + Sync + Sized + 'static {
    /// What its shadow pages are recognised by.
    fn space() -> &'static Space<Self>;

    /// A segment of the transfer under way is about to be handed out. The device memory stays until
    /// [`release`](Self::release). `false`: there is no transfer.
    fn hold(&self) -> bool;

    /// A segment is given back, by who says that it is `len` bytes at a bus address. `false`: none
    /// was out.
    fn release(&self, address: u64, len: usize) -> bool;

    /// What `peer` reaches the device memory of `len` bytes at `at` by: as much of it as is
    /// contiguous there. A peer that does not reach it yet is noted, and can when the transfer is
    /// tried again.
    fn bus(&self, at: usize, len: usize, peer: &Function) -> Option<Run>;

    /// Where the device memory of `len` bytes at `at` is: as much of it as is contiguous.
    fn physical(&self, at: usize, len: usize) -> Option<Run>;

    /// [`bus`](Self::bus), and what it gives has [`started`](Self::started).
    fn begin(&self, at: usize, len: usize, peer: &Function) -> Option<Run> {
        let run = self.bus(at, len, peer)?;
        self.started(at, run.len);
        Some(run)
    }

    /// Addresses for these bytes were handed out.
    fn started(&self, at: usize, len: usize);

    /// These bytes cannot be moved by DMA: forget that they were started.
    fn failed(&self, at: usize, len: usize);

    /// A segment of `len` bytes at a bus address was handed out to `peer`.
    fn handed_out(&self, peer: &Function, address: u64, len: usize);

    /// Whether these bytes are part of the transfer under way.
    fn is_under_way(&self, at: usize, len: usize) -> bool;

    /// What a remote peer reaches the device memory of the transfer under way by: the bytes of a
    /// `struct nvfs_rdma_info`. `None` when that is not known.
    fn remote(&self) -> Option<[u8; REMOTE_LEN]>;

    /// A number for the device.
    fn device_index(&self) -> Option<u32>;

    /// How far `peer` is from a device: the smaller the better; `u32::MAX` when not known.
    fn priority(peer: &Function, index: u32) -> u32;

    /// The requests that begin with its data and have others' too.
    fn shares(&self) -> &Shares<Self>;

    /// Counts what went wrong.
    fn fault(&self, fault: Fault);
}

/// Bytes of a `struct nvfs_rdma_info`.
pub const REMOTE_LEN: usize = size_of::<bindings::nvfs_rdma_info>();

/// Where a byte of shadow memory is: its page, and its place in bytes from the owner's first one.
type Found<T> = (Place<T>, usize);

/// Whose byte it is that is `offset` bytes behind the start of `page`.
///
/// # Safety
///
/// `page` is part of a request or list that the caller may look at.
unsafe fn resolve<T: Target>(page: *mut bindings::page, offset: usize) -> Option<Found<T>> {
    // SAFETY: By the safety requirements; who made the request holds its pages.
    let place = unsafe { T::space().find(page.wrapping_add(offset / PAGE_SIZE)) }?;
    let at = place.index * PAGE_SIZE + offset % PAGE_SIZE;
    Some((place, at))
}

/// Bytes from `offset` into the place's first page to the end of its run of pages.
fn room<T: Send + Sync>(place: &Place<T>, offset: usize) -> usize {
    place.pages * PAGE_SIZE - offset % PAGE_SIZE
}

/// These bytes of `owner` cannot be moved by DMA, which `peer` was to do. In a request of several
/// owners each must know the peer, before it is tried again.
fn fail<T: Target>(owner: &T, at: usize, len: usize, peer: Option<&Function>) {
    owner.failed(at, len);
    if let Some(peer) = peer {
        // Only to have it noted.
        let _ = owner.bus(at, len, peer);
    }
}

/// A segment, and whose memory it is.
type Segment<T> = (ARef<Reaped<T>>, Run);

/// Gives a segment of `owner` back, and with it the reference that it held. `false`, and nothing is
/// dropped, when none was out.
///
/// # Safety
///
/// `owner` is a live object.
unsafe fn give_back<T: Target>(owner: NonNull<Reaped<T>>, address: u64, len: usize) -> bool {
    // SAFETY: By the safety requirements.
    let was_out = unsafe { owner.as_ref() }.release(address, len);
    if was_out {
        // SAFETY: Each segment has left a reference when it was handed out, and this one is now
        // taken off the count of those that are out.
        drop(unsafe { ARef::from_raw(owner) });
    }
    was_out
}

// --- The functions of both tables.

/// # Safety
///
/// `page` is null or a page that the caller holds.
unsafe extern "C" fn is_gpu_page<T: Target>(page: *mut bindings::page) -> bool {
    // SAFETY: By the safety requirements.
    !page.is_null() && unsafe { T::space().contains(page) }
}

/// # Safety
///
/// `page` is null or a page that the caller holds.
unsafe extern "C" fn gpu_index<T: Target>(page: *mut bindings::page) -> c_uint {
    if page.is_null() || T::space().is_empty() {
        return NO_INDEX;
    }
    // SAFETY: By the safety requirements.
    let Some((place, at)) = (unsafe { resolve::<T>(page, 0) }) else {
        return NO_INDEX;
    };
    if !place.owner.is_under_way(at, 1) {
        return NO_INDEX;
    }
    place.owner.device_index().unwrap_or(NO_INDEX)
}

/// # Safety
///
/// `device` is null or a valid device.
unsafe extern "C" fn device_priority<T: Target>(
    device: *mut bindings::device,
    index: c_uint,
) -> c_uint {
    // SAFETY: By the safety requirements.
    match unsafe { Function::borrow(device) } {
        Some(peer) => T::priority(&peer, index),
        None => NO_INDEX,
    }
}

// --- The tables, and who has them.

/// A table of either kind, with the functions for a [`Target`]; storage drivers keep its address, so
/// it can only be a `static`.
pub struct Table<T> {
    raw: Raw,
    _type: PhantomData<fn() -> T>,
}

enum Raw {
    V1(bindings::nvfs_dma_ops_v1),
    V2(bindings::nvfs_dma_ops_v2),
}

// SAFETY: Never written.
unsafe impl<T> Sync for Table<T> {}

impl<T: Target> Table<T> {
    /// The table for scatterlists.
    pub const fn v1<F: Flavour>() -> Self {
        Self {
            raw: Raw::V1(bindings::nvfs_dma_ops_v1 {
                features: bindings::NVFS_FEATURES_V1 as u64,
                blk_rq_map_sg: Some(list::blk_rq_map_sg::<T, F>),
                map_sg: Some(list::dma_map_sg_attrs::<T>),
                unmap_sg: Some(list::dma_unmap_sg::<T>),
                is_gpu_page: Some(is_gpu_page::<T>),
                gpu_index: Some(gpu_index::<T>),
                device_priority: Some(device_priority::<T>),
                get_gpu_sglist_rdma_info: Some(list::rdma_info::<T>),
            }),
            _type: PhantomData,
        }
    }

    /// The table for the block layer's iterator.
    pub const fn v2() -> Self {
        Self {
            raw: Raw::V2(bindings::nvfs_dma_ops_v2 {
                features: bindings::NVFS_FEATURES_V2 as u64,
                blk_rq_dma_map_iter_start: Some(iterator::iter_start::<T>),
                blk_rq_dma_map_iter_next: Some(iterator::iter_next::<T>),
                unmap_page: Some(iterator::dma_unmap_page::<T>),
                is_gpu_page: Some(is_gpu_page::<T>),
                gpu_index: Some(gpu_index::<T>),
                device_priority: Some(device_priority::<T>),
                get_gpu_sglist_rdma_info: Some(list::rdma_info::<T>),
            }),
            _type: PhantomData,
        }
    }

    fn as_ptr(&self) -> *mut c_void {
        match &self.raw {
            Raw::V1(table) => core::ptr::from_ref(table).cast_mut().cast(),
            Raw::V2(table) => core::ptr::from_ref(table).cast_mut().cast(),
        }
    }
}

/// A table, and a pair of exports to offer it to.
///
/// # Invariants
///
/// The table is of the kind that the pair takes.
pub struct Offer<T: 'static> {
    pair: &'static Pair,
    table: &'static Table<T>,
}

impl<T: Target> Offer<T> {
    /// For a `static`: whether the kinds match is then found out when it is compiled.
    pub const fn new(pair: &'static Pair, table: &'static Table<T>) -> Self {
        let matching = match table.raw {
            Raw::V1(_) => matches!(pair.kind, Kind::V1),
            Raw::V2(_) => matches!(pair.kind, Kind::V2),
        };
        assert!(matching, "the pair takes tables of another kind");
        // INVARIANT: Just looked at.
        Self { pair, table }
    }

    /// Who it is offered to.
    pub fn pair(&self) -> &'static Pair {
        self.pair
    }
}

/// Why a table was not taken.
pub enum NotTaken {
    /// There is no such driver.
    Absent,
    /// It does not export its functions for GPL modules.
    Hidden,
    /// It exports one function of the pair only.
    Half,
    /// Its error.
    Refused(Error),
}

/// A table that a storage driver has. Dropping it takes the table back, which waits until the driver
/// has no call under way.
pub struct Registration {
    register: Symbol,
    unregister: Symbol,
}

impl Registration {
    /// Offers a table to the driver that has its pair of exports. May sleep.
    pub fn new<T: Target>(offer: &Offer<T>) -> Result<Self, NotTaken> {
        let Offer { pair, table } = offer;
        let register = Symbol::get(pair.register);
        let unregister = Symbol::get(pair.unregister);
        let (register, unregister) = match (register, unregister) {
            (Some(register), Some(unregister)) => (register, unregister),
            (None, None) if symbol::exists(pair.register) => return Err(NotTaken::Hidden),
            (None, None) => return Err(NotTaken::Absent),
            _ => return Err(NotTaken::Half),
        };
        // SAFETY: By the type invariant of `Pair` the export has this type.
        let function = unsafe {
            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void) -> c_int>(
                register.address(),
            )
        };
        // SAFETY: The table stays for ever, and by the type invariant of `Offer` it is of the kind that
        // the pair takes.
        let error = unsafe { function(table.as_ptr()) };
        if error != 0 {
            return Err(NotTaken::Refused(Error::from_errno(
                -error.saturating_abs(),
            )));
        }
        Ok(Self {
            register,
            unregister,
        })
    }

    /// The driver's module, by one of its functions.
    pub fn module(&self) -> crate::symbol::ModuleName {
        self.register.module()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant of `Pair` the export has this type.
        let function = unsafe {
            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn()>(
                self.unregister.address(),
            )
        };
        // SAFETY: The driver has the table; it is held by the symbols.
        unsafe { function() };
    }
}
