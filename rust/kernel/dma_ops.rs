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
    symbol::Symbol, //
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// The most payload of one request, in bytes.
const MAX_PAYLOAD: u32 = bindings::NVFS_MAX_REQUEST_BYTES;

/// The most entries that are made past the end mark of a list, which must have room for them.
const MAX_ENTRIES: usize = bindings::NVFS_MAX_SG_ENTRIES as usize - 1;

const IO_ERROR: c_int = bindings::NVFS_IO_ERROR;
const NOT_GPU: c_int = bindings::NVFS_NOT_GPU;
const NO_INDEX: c_uint = bindings::NVFS_NO_INDEX;

/// What can be wrong with what a storage driver asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Shadow pages and others, or those of two owners, in one request.
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
    /// contiguous there.
    fn bus(&self, at: usize, len: usize, peer: &Function) -> Option<Run>;

    /// Where the device memory of `len` bytes at `at` is: as much of it as is contiguous.
    fn physical(&self, at: usize, len: usize) -> Option<Run>;

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

    /// Counts what went wrong.
    fn fault(&self, fault: Fault);
}

/// Bytes of a `struct nvfs_rdma_info`.
pub const REMOTE_LEN: usize = size_of::<bindings::nvfs_rdma_info>();

/// The function that resolves a page of a request.
///
/// # Safety
///
/// `page` is part of a request or list that the caller may look at.
unsafe fn resolve<T: Target>(
    page: *mut bindings::page,
    offset: usize,
) -> Option<(Place<T>, usize)> {
    // SAFETY: By the safety requirements; who made the request holds its pages.
    let place = unsafe { T::space().find(page.wrapping_add(offset / PAGE_SIZE)) }?;
    let at = place.index * PAGE_SIZE + offset % PAGE_SIZE;
    Some((place, at))
}

/// Bytes from `offset` into the place's first page to the end of its run of pages.
fn room<T: Send + Sync>(place: &Place<T>, offset: usize) -> usize {
    place.pages * PAGE_SIZE - offset % PAGE_SIZE
}

/// A position in the data of a request.
#[derive(Clone, Copy)]
struct Cursor {
    bio: *mut bindings::bio,
    iter: bindings::bvec_iter,
}

/// Bytes of one bvec of a request: `len` bytes, `offset` bytes behind the start of `page`.
struct Piece {
    page: *mut bindings::page,
    offset: usize,
    len: usize,
}

impl Cursor {
    /// The start of a request.
    ///
    /// # Safety
    ///
    /// `bio` is null or the first bio of a request that is being mapped, and stays so while the
    /// cursor is used.
    unsafe fn new(bio: *mut bindings::bio) -> Self {
        let iter = if bio.is_null() {
            bindings::bvec_iter::default()
        } else {
            // SAFETY: By the safety requirements.
            unsafe { (*bio).bi_iter }
        };
        let mut cursor = Self { bio, iter };
        cursor.settle();
        cursor
    }

    /// Goes on to the next bio that has data, if this one has none left.
    fn settle(&mut self) {
        while self.iter.bi_size == 0 && !self.bio.is_null() {
            // SAFETY: By the safety requirements of `new`.
            let next = unsafe { (*self.bio).bi_next };
            if next.is_null() {
                return;
            }
            self.bio = next;
            // SAFETY: As above.
            self.iter = unsafe { (*next).bi_iter };
        }
    }

    /// What is left of the current bvec. `None` at the end.
    fn piece(&self) -> Option<Piece> {
        if self.bio.is_null() || self.iter.bi_size == 0 {
            return None;
        }
        // SAFETY: By the safety requirements of `new`, the iterator is inside the bio's table.
        let bvec =
            unsafe { bindings::nvfs_helper_bvec_iter_piece((*self.bio).bi_io_vec, &self.iter) };
        Some(Piece {
            page: bvec.bv_page,
            offset: bvec.bv_offset as usize,
            len: bvec.bv_len as usize,
        })
    }

    /// Goes on by `bytes`, which are at most what [`piece`](Self::piece) has.
    fn advance(&mut self, bytes: usize) {
        let Some(piece) = self.piece() else {
            return;
        };
        // A piece is part of a bio, whose size has 32 bits.
        let step = bytes.min(piece.len) as c_uint;
        // SAFETY: By the safety requirements of `new`; the piece has as many bytes.
        unsafe {
            bindings::nvfs_helper_bvec_iter_advance_single(
                (*self.bio).bi_io_vec,
                &mut self.iter,
                step,
            )
        };
        self.settle();
    }
}

/// Whose pages a request has.
enum Owner<T: Send + Sync + 'static> {
    /// Ordinary pages only.
    None,
    /// Shadow pages of one owner only.
    One(ARef<Reaped<T>>),
    /// Shadow pages of one owner, and others.
    Mixed(ARef<Reaped<T>>),
}

/// Looks at all pages of a request.
///
/// # Safety
///
/// As for [`Cursor::new`].
unsafe fn owner<T: Target>(bio: *mut bindings::bio) -> Owner<T> {
    if T::space().is_empty() {
        return Owner::None;
    }
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    let mut ordinary = false;
    let mut first: Option<ARef<Reaped<T>>> = None;
    let mut mixed = false;
    while let Some(piece) = cursor.piece() {
        let mut len = piece.len;
        // SAFETY: The piece is part of the request.
        match unsafe { resolve::<T>(piece.page, piece.offset) } {
            None => ordinary = true,
            Some((place, _)) => {
                len = len.min(room(&place, piece.offset));
                match &first {
                    None => first = Some(place.owner),
                    Some(owner) => mixed |= !core::ptr::eq(&**owner, &*place.owner),
                }
            }
        }
        cursor.advance(len);
    }
    match first {
        None => Owner::None,
        Some(owner) if ordinary || mixed => Owner::Mixed(owner),
        Some(owner) => Owner::One(owner),
    }
}

/// No part of a request can be moved by DMA to device memory.
///
/// # Safety
///
/// As for [`Cursor::new`].
unsafe fn fail_request<T: Target>(bio: *mut bindings::bio) {
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    while let Some(piece) = cursor.piece() {
        let mut len = piece.len;
        // SAFETY: The piece is part of the request.
        if let Some((place, at)) = unsafe { resolve::<T>(piece.page, piece.offset) } {
            len = len.min(room(&place, piece.offset));
            place.owner.failed(at, len);
        }
        cursor.advance(len);
    }
}

/// A request that can be ours at all: a plain read or write with data.
///
/// # Safety
///
/// `request` is null or a request that is being mapped.
unsafe fn is_plain(request: *mut bindings::request) -> bool {
    !request.is_null()
        // SAFETY: By the safety requirements.
        && unsafe { !(*request).bio.is_null() }
        // SAFETY: As above.
        && unsafe { bindings::nvfs_helper_rq_is_read_or_write(request) }
}

/// Whether the device memory can be used for a request as a whole.
///
/// # Safety
///
/// `request` is a request that is being mapped.
unsafe fn is_usable(request: *mut bindings::request) -> bool {
    // SAFETY: By the safety requirements.
    unsafe {
        !bindings::nvfs_helper_rq_has_integrity(request)
            && bindings::nvfs_helper_rq_payload_bytes(request) <= MAX_PAYLOAD
    }
}

// --- The functions of the table for the block layer's iterator.

/// A segment, and whose memory it is.
type Segment<T> = (ARef<Reaped<T>>, Run);

/// The next segment of a request whose pages are all of one owner. Moves the cursor behind it.
/// `Ok(None)`: no data left.
fn next_segment<T: Target>(
    cursor: &mut Cursor,
    peer: &Function,
) -> Result<Option<Segment<T>>, Fault> {
    let mut segment: Option<Segment<T>> = None;
    while let Some(piece) = cursor.piece() {
        // SAFETY: The piece is part of the request that the cursor is in.
        let Some((place, at)) = (unsafe { resolve::<T>(piece.page, piece.offset) }) else {
            break;
        };
        let len = piece.len.min(room(&place, piece.offset));
        let run = place.owner.bus(at, len, peer).ok_or(Fault::NoAddress)?;
        match &mut segment {
            None => {
                place.owner.started(at, run.len);
                segment = Some((place.owner, run));
            }
            Some((owner, whole)) => {
                let follows = whole.address.checked_add(whole.len as u64) == Some(run.address);
                if !follows || !run.joins || !core::ptr::eq(&**owner, &*place.owner) {
                    break;
                }
                owner.started(at, run.len);
                whole.len += run.len;
            }
        }
        cursor.advance(run.len);
        if run.len < len {
            break;
        }
    }
    // Last, so that no failure above leaves it held.
    match &segment {
        Some((owner, _)) if !owner.hold() => Err(Fault::NoAddress),
        _ => Ok(segment),
    }
}

/// One step of the iterator: 1 with a segment; 0 without, and then the status tells.
///
/// # Safety
///
/// The arguments are those of a driver that maps `request` for `device`, with `iter` positioned.
unsafe fn step<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    iter: *mut bindings::blk_dma_iter,
) -> (c_int, *mut c_void) {
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe {
        Cursor {
            bio: (*iter).iter.bio,
            iter: (*iter).iter.iter,
        }
    };
    let Some(piece) = cursor.piece() else {
        return (0, null_mut());
    };
    // SAFETY: The piece is part of the request.
    if unsafe { !T::space().contains(piece.page.wrapping_add(piece.offset / PAGE_SIZE)) } {
        return (0, null_mut());
    }
    // SAFETY: By the safety requirements.
    let peer = unsafe { Function::borrow(device) };
    // SAFETY: As above.
    let segment = match (&peer, unsafe { is_usable(request) }) {
        (Some(peer), true) => next_segment::<T>(&mut cursor, peer),
        _ => Err(Fault::NoAddress),
    };
    match segment {
        Ok(Some((owner, run))) => {
            // SAFETY: The iterator is the driver's to be written by us.
            unsafe {
                (*iter).iter.bio = cursor.bio;
                (*iter).iter.iter = cursor.iter;
                (*iter).addr = run.address;
                // A request has at most `MAX_PAYLOAD` bytes.
                (*iter).len = run.len as u32;
                (*iter).status = 0;
            }
            if let Some(peer) = &peer {
                owner.handed_out(peer, run.address, run.len);
            }
            (1, ARef::into_raw(owner).as_ptr().cast())
        }
        Ok(None) => (0, null_mut()),
        Err(_) => {
            // SAFETY: By the safety requirements.
            unsafe { refuse::<T>(request, iter) };
            (0, null_mut())
        }
    }
}

/// Refuses a request that has shadow pages.
///
/// # Safety
///
/// As for [`step`].
unsafe fn refuse<T: Target>(request: *mut bindings::request, iter: *mut bindings::blk_dma_iter) {
    // SAFETY: By the safety requirements.
    unsafe {
        (*iter).status = bindings::nvfs_blk_sts_NVFS_BLK_STS_IOERR as bindings::blk_status_t;
        fail_request::<T>((*request).bio);
    }
}

/// # Safety
///
/// Only for storage drivers that map `request`, with an `iter` of their own.
unsafe extern "C" fn iter_start<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    _state: *mut bindings::dma_iova_state,
    iter: *mut bindings::blk_dma_iter,
    cookie: *mut *mut c_void,
) -> c_int {
    // SAFETY: By the safety requirements.
    if iter.is_null() || unsafe { !is_plain(request) } {
        return 0;
    }
    // SAFETY: As above.
    let bio = unsafe { (*request).bio };
    // SAFETY: As above.
    match unsafe { owner::<T>(bio) } {
        Owner::None => {
            // SAFETY: As above.
            unsafe { (*iter).status = 0 };
            return 0;
        }
        Owner::Mixed(owner) => {
            owner.fault(Fault::Mixed);
            // SAFETY: As above.
            unsafe { refuse::<T>(request, iter) };
            return 0;
        }
        Owner::One(_) => (),
    }
    // SAFETY: As above.
    unsafe {
        let cursor = Cursor::new(bio);
        (*iter).iter.bio = cursor.bio;
        (*iter).iter.iter = cursor.iter;
        (*iter).status = 0;
    }
    // SAFETY: As above; positioned just now.
    let (result, handle) = unsafe { step::<T>(request, device, iter) };
    if result == 1 && !cookie.is_null() {
        // SAFETY: As above.
        unsafe { *cookie = handle };
    }
    result
}

/// # Safety
///
/// As for [`iter_start`], after a call of it for the same request.
unsafe extern "C" fn iter_next<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    _state: *mut bindings::dma_iova_state,
    iter: *mut bindings::blk_dma_iter,
) -> c_int {
    if iter.is_null() || request.is_null() {
        return 0;
    }
    // SAFETY: By the safety requirements. The reference of the segment is given back by the
    // cookie, which is the same for all segments of a request: they have one owner.
    unsafe { step::<T>(request, device, iter) }.0
}

/// # Safety
///
/// `cookie` is null, or what [`iter_start`] gave, once for each segment.
unsafe extern "C" fn dma_unmap_page<T: Target>(
    _device: *mut bindings::device,
    cookie: *mut c_void,
    address: bindings::dma_addr_t,
    len: usize,
    _direction: bindings::dma_data_direction,
) -> c_int {
    let Some(object) = NonNull::new(cookie.cast::<Reaped<T>>()) else {
        return IO_ERROR;
    };
    // SAFETY: By the safety requirements the object has a segment out, which holds it.
    unsafe { give_back(object, address, len) };
    0
}

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

// --- The functions of the table for scatterlists.

/// How a driver treats its lists.
pub trait Flavour: 'static {
    /// The queue's limit of a segment does not count.
    const NVME: bool;
}

/// NVMe, NVMe/RDMA and their kind.
pub struct Nvme;

impl Flavour for Nvme {
    const NVME: bool = true;
}

/// Network file systems and SCSI.
pub struct Plain;

impl Flavour for Plain {
    const NVME: bool = false;
}

/// A list that is being filled.
struct List {
    first: *mut bindings::scatterlist,
    last: *mut bindings::scatterlist,
    entries: usize,
    /// It is past its end mark.
    grown: bool,
}

impl List {
    /// Adds an entry for `len` bytes. `false` when there is no room.
    ///
    /// # Safety
    ///
    /// `first` is a list as the driver's flavour promises.
    unsafe fn push(&mut self, page: *mut bindings::page, offset: usize, len: usize) -> bool {
        let entry = if self.last.is_null() {
            self.first
        // SAFETY: By the safety requirements `last` is an entry.
        } else if !self.grown && unsafe { !bindings::nvfs_helper_sg_is_last(self.last) } {
            // SAFETY: As above; it is not the last.
            unsafe { bindings::nvfs_helper_sg_next(self.last) }
        } else if self.entries < MAX_ENTRIES {
            self.grown = true;
            // SAFETY: By the safety requirements there is room for another entry behind it.
            unsafe {
                bindings::nvfs_helper_sg_unmark_end(self.last);
                let next = self.last.add(1);
                next.write_bytes(0, 1);
                next
            }
        } else {
            return false;
        };
        if entry.is_null() {
            return false;
        }
        // SAFETY: An entry of the list. Both numbers are less than `MAX_PAYLOAD`.
        unsafe {
            bindings::nvfs_helper_sg_set_page(entry, page, len as c_uint, offset as c_uint);
            bindings::nvfs_helper_sg_set_dma(entry, 0, 0);
        }
        self.last = entry;
        self.entries += 1;
        true
    }

    /// Takes back what was filled in.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push).
    unsafe fn clear(&mut self) {
        let mut entry = self.first;
        for _ in 0..self.entries {
            if entry.is_null() {
                break;
            }
            // SAFETY: One of the entries that were filled in.
            unsafe {
                bindings::nvfs_helper_sg_unset_page(entry);
                entry = bindings::nvfs_helper_sg_next(entry);
            }
        }
        self.entries = 0;
    }
}

/// # Safety
///
/// Only for storage drivers that map `request`, with a list of their own.
unsafe extern "C" fn blk_rq_map_sg<T: Target, F: Flavour>(
    queue: *mut bindings::request_queue,
    request: *mut bindings::request,
    sgl: *mut bindings::scatterlist,
) -> c_int {
    // SAFETY: By the safety requirements.
    if queue.is_null() || unsafe { !is_plain(request) } {
        return 0;
    }
    // SAFETY: As above.
    let bio = unsafe { (*request).bio };
    // SAFETY: As above.
    let owner = match unsafe { owner::<T>(bio) } {
        Owner::None => return 0,
        Owner::Mixed(owner) => {
            owner.fault(Fault::Mixed);
            None
        }
        Owner::One(owner) => Some(owner),
    };
    let limit = if F::NVME {
        usize::MAX
    } else {
        // SAFETY: The driver's queue.
        unsafe { (*queue).limits.max_segment_size as usize }
    };
    let mut list = List {
        first: sgl,
        last: null_mut(),
        entries: 0,
        grown: false,
    };
    // SAFETY: By the safety requirements.
    let usable = !sgl.is_null() && unsafe { is_usable(request) };
    let filled = match owner {
        // SAFETY: As above.
        Some(owner) if usable => unsafe { fill(&mut list, bio, &owner, limit) },
        _ => false,
    };
    if !filled {
        // SAFETY: By the safety requirements.
        unsafe {
            if !sgl.is_null() {
                list.clear();
            }
            fail_request::<T>(bio);
        }
        return IO_ERROR;
    }
    // At most `MAX_ENTRIES`, or as many as the driver had.
    let count = list.entries as c_ushort;
    // SAFETY: By the safety requirements; the last entry is one of the list.
    unsafe {
        bindings::nvfs_helper_sg_mark_end(list.last);
        if (*request).nr_phys_segments < count {
            (*request).nr_phys_segments = count;
        }
    }
    c_int::from(count)
}

/// A byte of host memory. Pages that follow one another in the memory map do so in physical memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Host {
    page: *mut bindings::page,
    offset: usize,
}

impl Host {
    fn new(page: *mut bindings::page, offset: usize) -> Self {
        Self {
            page: page.wrapping_add(offset / PAGE_SIZE),
            offset: offset % PAGE_SIZE,
        }
    }

    fn after(self, bytes: usize) -> Self {
        Self::new(self.page, self.offset + bytes)
    }
}

/// Fills a list with the segments of a request whose pages are all `owner`'s. `false` when that
/// cannot be.
///
/// # Safety
///
/// As for [`blk_rq_map_sg`].
unsafe fn fill<T: Target>(
    list: &mut List,
    bio: *mut bindings::bio,
    owner: &Reaped<T>,
    limit: usize,
) -> bool {
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    // The entry that is being made: where it begins and what follows it in host memory, and what
    // it is in device memory.
    let mut entry: Option<(Host, Host, Run)> = None;
    while let Some(piece) = cursor.piece() {
        // SAFETY: The piece is part of the request.
        let Some((place, at)) = (unsafe { resolve::<T>(piece.page, piece.offset) }) else {
            return false;
        };
        let len = piece.len.min(room(&place, piece.offset)).min(limit);
        let Some(run) = owner.physical(at, len) else {
            return false;
        };
        owner.started(at, run.len);
        let host = Host::new(piece.page, piece.offset);
        match &mut entry {
            Some((_, next, whole))
                if *next == host
                    && run.joins
                    && whole.address.checked_add(whole.len as u64) == Some(run.address)
                    && whole.len + run.len <= limit =>
            {
                whole.len += run.len;
                *next = host.after(run.len);
            }
            _ => {
                if let Some((first, _, whole)) = entry.take() {
                    // SAFETY: By the safety requirements.
                    if unsafe { !list.push(first.page, first.offset, whole.len) } {
                        owner.fault(Fault::ListFull);
                        return false;
                    }
                }
                entry = Some((host, host.after(run.len), run));
            }
        }
        cursor.advance(run.len);
    }
    let Some((first, _, whole)) = entry else {
        return false;
    };
    // SAFETY: By the safety requirements.
    let fits = unsafe { list.push(first.page, first.offset, whole.len) };
    if !fits {
        owner.fault(Fault::ListFull);
    }
    fits
}

/// The entries of a list that have a page.
///
/// # Safety
///
/// `sgl` is null or a list of at least `nents` entries, and stays so while the iterator is used.
unsafe fn entries(
    sgl: *mut bindings::scatterlist,
    nents: c_int,
) -> impl Iterator<Item = *mut bindings::scatterlist> {
    let mut next = sgl;
    (0..nents).map_while(move |_| {
        let entry = next;
        if entry.is_null() {
            return None;
        }
        // SAFETY: By the safety requirements.
        next = unsafe { bindings::nvfs_helper_sg_next(entry) };
        Some(entry)
    })
}

/// How many entries of a list have shadow pages, and how many have others.
///
/// # Safety
///
/// As for [`entries`].
unsafe fn census<T: Target>(
    sgl: *mut bindings::scatterlist,
    nents: c_int,
) -> (usize, usize, Option<ARef<Reaped<T>>>) {
    let (mut ours, mut others, mut first) = (0, 0, None);
    // SAFETY: By the safety requirements.
    for entry in unsafe { entries(sgl, nents) } {
        // SAFETY: An entry of the list.
        let (page, offset) = unsafe { (bindings::nvfs_helper_sg_page(entry), (*entry).offset) };
        if page.is_null() {
            continue;
        }
        // SAFETY: The driver holds the pages of its list.
        match unsafe { resolve::<T>(page, offset as usize) } {
            Some((place, _)) => {
                ours += 1;
                first.get_or_insert(place.owner);
            }
            None => others += 1,
        }
    }
    (ours, others, first)
}

/// What a peer reaches an entry by. All of it must be contiguous there.
///
/// # Safety
///
/// `entry` has a page.
unsafe fn entry_address<T: Target>(
    entry: *mut bindings::scatterlist,
    peer: &Function,
) -> Option<(ARef<Reaped<T>>, u64)> {
    // SAFETY: By the safety requirements.
    let (page, mut offset, mut left) = unsafe {
        (
            bindings::nvfs_helper_sg_page(entry),
            (*entry).offset as usize,
            (*entry).length as usize,
        )
    };
    let mut whole: Option<Segment<T>> = None;
    while left > 0 {
        // SAFETY: The driver holds the pages of its list.
        let (place, at) = unsafe { resolve::<T>(page, offset) }?;
        let len = left.min(room(&place, offset));
        let run = place.owner.bus(at, len, peer)?;
        match &mut whole {
            None => whole = Some((place.owner, run)),
            Some((owner, whole)) => {
                if !core::ptr::eq(&**owner, &*place.owner)
                    || whole.address.checked_add(whole.len as u64) != Some(run.address)
                {
                    return None;
                }
                whole.len += run.len;
            }
        }
        offset += run.len;
        left -= run.len;
    }
    whole.map(|(owner, run)| (owner, run.address))
}

/// Calls `done` for each part of an entry that is in one run of pages.
///
/// # Safety
///
/// `entry` has a page.
unsafe fn each_part<T: Target>(entry: *mut bindings::scatterlist, done: impl Fn(&T, usize, usize)) {
    // SAFETY: By the safety requirements.
    let (page, mut offset, mut left) = unsafe {
        (
            bindings::nvfs_helper_sg_page(entry),
            (*entry).offset as usize,
            (*entry).length as usize,
        )
    };
    while left > 0 {
        // SAFETY: The driver holds the pages of its list.
        let Some((place, at)) = (unsafe { resolve::<T>(page, offset) }) else {
            return;
        };
        let len = left.min(room(&place, offset));
        done(&place.owner, at, len);
        offset += len;
        left -= len;
    }
}

/// Gives the segments of the first `nents` entries back; returns of how many.
///
/// # Safety
///
/// As for [`entries`]; the entries with a DMA length were filled in by [`dma_map_sg_attrs`].
unsafe fn release_entries<T: Target>(sgl: *mut bindings::scatterlist, nents: c_int) -> usize {
    let mut released = 0;
    // SAFETY: By the safety requirements.
    for entry in unsafe { entries(sgl, nents) } {
        // SAFETY: An entry of the list.
        let (page, offset) = unsafe { (bindings::nvfs_helper_sg_page(entry), (*entry).offset) };
        // SAFETY: As above.
        let (address, len) = unsafe {
            (
                bindings::nvfs_helper_sg_dma_address(entry),
                bindings::nvfs_helper_sg_dma_len(entry),
            )
        };
        if page.is_null() || len == 0 {
            continue;
        }
        // SAFETY: The driver holds the pages of its list.
        let Some((place, _)) = (unsafe { resolve::<T>(page, offset as usize) }) else {
            continue;
        };
        // SAFETY: As above. It is not given back twice.
        unsafe { bindings::nvfs_helper_sg_set_dma(entry, 0, 0) };
        // SAFETY: `place` holds the owner.
        if unsafe { give_back(NonNull::from(&*place.owner), address, len as usize) } {
            released += 1;
        }
    }
    released
}

/// # Safety
///
/// Only for storage drivers, with a list of their own.
unsafe extern "C" fn dma_map_sg_attrs<T: Target>(
    device: *mut bindings::device,
    sgl: *mut bindings::scatterlist,
    nents: c_int,
    _direction: bindings::dma_data_direction,
    _attrs: c_ulong,
) -> c_int {
    if sgl.is_null() || nents <= 0 {
        return IO_ERROR;
    }
    if T::space().is_empty() {
        return NOT_GPU;
    }
    // SAFETY: By the safety requirements.
    let (ours, others, first) = unsafe { census::<T>(sgl, nents) };
    let Some(first) = first else {
        return NOT_GPU;
    };
    // SAFETY: As above.
    let peer = unsafe { Function::borrow(device) };
    let whole = others == 0 && c_int::try_from(ours) == Ok(nents);
    if others > 0 {
        first.fault(Fault::Mixed);
    }
    if let (Some(peer), true) = (peer, whole) {
        let mut taken = 0;
        // SAFETY: By the safety requirements.
        for entry in unsafe { entries(sgl, nents) } {
            // SAFETY: As above; each has a page.
            let Some((owner, address)) = (unsafe { entry_address::<T>(entry, &peer) }) else {
                break;
            };
            if !owner.hold() {
                break;
            }
            // SAFETY: As above.
            unsafe {
                each_part::<T>(entry, |owner, at, len| owner.started(at, len));
                bindings::nvfs_helper_sg_set_dma(entry, address, (*entry).length);
            }
            // SAFETY: As above.
            let len = unsafe { (*entry).length as usize };
            owner.handed_out(&peer, address, len);
            // Given back by `release_entries`.
            let _ = ARef::into_raw(owner);
            taken += 1;
        }
        if taken == nents {
            return nents;
        }
        // SAFETY: As above; those taken have a DMA length.
        unsafe { release_entries::<T>(sgl, taken) };
    }
    // SAFETY: As above.
    for entry in unsafe { entries(sgl, nents) } {
        // SAFETY: As above.
        unsafe {
            if bindings::nvfs_helper_sg_page(entry).is_null() {
                continue;
            }
            each_part::<T>(entry, |owner, at, len| owner.failed(at, len));
            bindings::nvfs_helper_sg_set_dma(entry, 0, 0);
        }
    }
    IO_ERROR
}

/// # Safety
///
/// Only for storage drivers, with a list that [`dma_map_sg_attrs`] was called with.
unsafe extern "C" fn dma_unmap_sg<T: Target>(
    _device: *mut bindings::device,
    sgl: *mut bindings::scatterlist,
    nents: c_int,
    _direction: bindings::dma_data_direction,
) -> c_int {
    if sgl.is_null() || nents <= 0 || T::space().is_empty() {
        return 0;
    }
    // SAFETY: By the safety requirements.
    let (ours, others, first) = unsafe { census::<T>(sgl, nents) };
    let Some(first) = first else {
        return 0;
    };
    // SAFETY: As above.
    let released = unsafe { release_entries::<T>(sgl, nents) };
    if others > 0 {
        first.fault(Fault::Mixed);
        return IO_ERROR;
    }
    if released < ours {
        first.fault(Fault::NotTaken);
    }
    // Also when none was taken, as after a failed map: these are not for the driver to unmap.
    c_int::try_from(ours).unwrap_or(c_int::MAX)
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

/// # Safety
///
/// Only for storage drivers, with a list of their own.
unsafe extern "C" fn rdma_info<T: Target>(
    sgl: *mut bindings::scatterlist,
    nents: c_int,
    info: *mut bindings::nvfs_rdma_info,
) -> c_int {
    if sgl.is_null() || nents <= 0 || info.is_null() {
        return NOT_GPU;
    }
    // SAFETY: By the safety requirements.
    let (page, offset) = unsafe { (bindings::nvfs_helper_sg_page(sgl), (*sgl).offset) };
    if page.is_null() {
        return IO_ERROR;
    }
    if T::space().is_empty() {
        return NOT_GPU;
    }
    // SAFETY: The driver holds the pages of its list.
    let Some((place, at)) = (unsafe { resolve::<T>(page, offset as usize) }) else {
        return NOT_GPU;
    };
    if !place.owner.is_under_way(at, 1) {
        return IO_ERROR;
    }
    let Some(remote) = place.owner.remote() else {
        return IO_ERROR;
    };
    // SAFETY: By the safety requirements.
    let checked = unsafe { check_remote(sgl, nents, &place.owner) };
    // SAFETY: The driver's own record, of as many bytes.
    unsafe {
        let bytes = if checked == nents {
            remote
        } else {
            [0; REMOTE_LEN]
        };
        info.cast::<[u8; REMOTE_LEN]>().write_unaligned(bytes);
    }
    checked
}

/// Whether all of a list is `owner`'s and part of its transfer, in order; then its blocks count as
/// moved. Returns `nents`, or what is wrong.
///
/// # Safety
///
/// `sgl` is a list of the driver's.
unsafe fn check_remote<T: Target>(
    sgl: *mut bindings::scatterlist,
    nents: c_int,
    owner: &Reaped<T>,
) -> c_int {
    let mut seen = 0;
    let mut expected = None;
    // SAFETY: By the safety requirements.
    for entry in unsafe { entries(sgl, nents) } {
        // SAFETY: An entry of the list.
        let (page, mut offset, mut left) = unsafe {
            (
                bindings::nvfs_helper_sg_page(entry),
                (*entry).offset as usize,
                (*entry).length as usize,
            )
        };
        if page.is_null() {
            return NOT_GPU;
        }
        while left > 0 {
            // SAFETY: The driver holds the pages of its list.
            let Some((place, at)) = (unsafe { resolve::<T>(page, offset) }) else {
                return NOT_GPU;
            };
            let len = left.min(room(&place, offset));
            let follows = expected.is_none_or(|expected| expected == at);
            if !core::ptr::eq(&*place.owner, owner) || !follows || !owner.is_under_way(at, len) {
                place.owner.failed(at, len);
                return IO_ERROR;
            }
            expected = Some(at + len);
            offset += len;
            left -= len;
        }
        seen += 1;
    }
    if seen != nents {
        return NOT_GPU;
    }
    // SAFETY: By the safety requirements.
    for entry in unsafe { entries(sgl, nents) } {
        // SAFETY: Each has a page, as was seen above.
        unsafe { each_part::<T>(entry, |owner, at, len| owner.started(at, len)) };
    }
    nents
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
                blk_rq_map_sg: Some(blk_rq_map_sg::<T, F>),
                map_sg: Some(dma_map_sg_attrs::<T>),
                unmap_sg: Some(dma_unmap_sg::<T>),
                is_gpu_page: Some(is_gpu_page::<T>),
                gpu_index: Some(gpu_index::<T>),
                device_priority: Some(device_priority::<T>),
                get_gpu_sglist_rdma_info: Some(rdma_info::<T>),
            }),
            _type: PhantomData,
        }
    }

    /// The table for the block layer's iterator.
    pub const fn v2() -> Self {
        Self {
            raw: Raw::V2(bindings::nvfs_dma_ops_v2 {
                features: bindings::NVFS_FEATURES_V2 as u64,
                blk_rq_dma_map_iter_start: Some(iter_start::<T>),
                blk_rq_dma_map_iter_next: Some(iter_next::<T>),
                unmap_page: Some(dma_unmap_page::<T>),
                is_gpu_page: Some(is_gpu_page::<T>),
                gpu_index: Some(gpu_index::<T>),
                device_priority: Some(device_priority::<T>),
                get_gpu_sglist_rdma_info: Some(rdma_info::<T>),
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

/// Where a storage driver takes a table, and where it gives it back: the names of two exports.
#[derive(PartialEq, Eq)]
pub struct Pair {
    /// `int register(table)`.
    pub register: &'static CStr,
    /// `void unregister(void)`.
    pub unregister: &'static CStr,
}

/// Why a table was not taken.
pub enum NotTaken {
    /// There is no such driver.
    Absent,
    /// It has one function of the pair only.
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
    /// Offers `table` to the driver that exports `pair`. May sleep.
    pub fn new<T: Target>(pair: &Pair, table: &'static Table<T>) -> Result<Self, NotTaken> {
        let register = Symbol::get(pair.register);
        let unregister = Symbol::get(pair.unregister);
        let (register, unregister) = match (register, unregister) {
            (Some(register), Some(unregister)) => (register, unregister),
            (None, None) => return Err(NotTaken::Absent),
            _ => return Err(NotTaken::Half),
        };
        // SAFETY: The exports of these names have this type.
        let function = unsafe {
            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void) -> c_int>(
                register.address(),
            )
        };
        // SAFETY: The table stays for ever, and is of the kind that the pair takes.
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
        // SAFETY: The export of this name has this type.
        let function = unsafe {
            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn()>(
                self.unregister.address(),
            )
        };
        // SAFETY: The driver has the table; it is held by the symbols.
        unsafe { function() };
    }
}
