// SPDX-License-Identifier: GPL-2.0

//! The functions of the table for scatterlists: contract section 15, and 17.4.

use super::{
    fail,
    give_back,
    request::{
        fail_request,
        is_of_transfer,
        is_plain,
        is_usable,
        owner,
        Cursor,
        Owner, //
    },
    resolve,
    room,
    Fault,
    Run,
    Segment,
    Target,
    IO_ERROR,
    NOT_GPU,
    REMOTE_LEN, //
};
use crate::{
    bindings,
    pci::Function,
    reaper::Reaped, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// The most entries that are made past the end mark of a list, which must have room for them.
const MAX_ENTRIES: usize = bindings::NVFS_MAX_SG_ENTRIES as usize - 1;

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
    /// Null, or, past it, the entry that had the end mark.
    end: *mut bindings::scatterlist,
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
        } else if self.end.is_null() && unsafe { !bindings::nvfs_helper_sg_is_last(self.last) } {
            // SAFETY: As above; it is not the last.
            unsafe { bindings::nvfs_helper_sg_next(self.last) }
        } else if self.entries < MAX_ENTRIES {
            if self.end.is_null() {
                self.end = self.last;
            }
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
        if !self.end.is_null() {
            // SAFETY: It was the driver's last entry.
            unsafe { bindings::nvfs_helper_sg_mark_end(self.end) };
        }
        self.entries = 0;
    }
}

/// # Safety
///
/// Only for storage drivers that map `request`, with a list of their own.
pub(super) unsafe extern "C" fn blk_rq_map_sg<T: Target, F: Flavour>(
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
    let whole = match unsafe { owner::<T>(bio) } {
        Owner::None => return 0,
        // SAFETY: As above.
        Owner::Mixed(_) if unsafe { !is_of_transfer(bio) } => return 0,
        Owner::Mixed(owner) => {
            owner.fault(Fault::Mixed);
            false
        }
        Owner::One(_) | Owner::Several(_) => true,
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
        end: null_mut(),
    };
    // SAFETY: By the safety requirements.
    let usable = whole && !sgl.is_null() && unsafe { is_usable(request) };
    // SAFETY: As above.
    let filled = usable && unsafe { fill::<T>(&mut list, bio, limit) };
    if !filled {
        // SAFETY: By the safety requirements.
        unsafe {
            if !sgl.is_null() {
                list.clear();
            }
            fail_request::<T>(bio, None);
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

/// An entry that is being made.
struct Entry<T: Send + Sync + 'static> {
    owner: ARef<Reaped<T>>,
    /// Where it begins in host memory.
    first: Host,
    /// What follows it in host memory.
    next: Host,
    /// What it is in device memory.
    run: Run,
}

impl<T: Target> Entry<T> {
    /// Adds it to a list. `false` when there is no room.
    ///
    /// # Safety
    ///
    /// As for [`List::push`].
    unsafe fn push(self, list: &mut List) -> bool {
        // SAFETY: By the safety requirements.
        let fits = unsafe { list.push(self.first.page, self.first.offset, self.run.len) };
        if !fits {
            self.owner.fault(Fault::ListFull);
        }
        fits
    }
}

/// Fills a list with the segments of a request whose pages are all shadow pages. `false` when that
/// cannot be.
///
/// # Safety
///
/// As for [`blk_rq_map_sg`].
unsafe fn fill<T: Target>(list: &mut List, bio: *mut bindings::bio, limit: usize) -> bool {
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    let mut entry: Option<Entry<T>> = None;
    while let Some(piece) = cursor.piece() {
        // SAFETY: The piece is part of the request.
        let Some((place, at)) = (unsafe { resolve::<T>(piece.page, piece.offset) }) else {
            return false;
        };
        let len = piece.len.min(room(&place, piece.offset)).min(limit);
        let Some(run) = place.owner.physical(at, len) else {
            return false;
        };
        place.owner.started(at, run.len);
        let host = Host::new(piece.page, piece.offset);
        match &mut entry {
            Some(entry)
                if entry.next == host
                    && run.joins
                    && core::ptr::eq(&*entry.owner, &*place.owner)
                    && entry.run.address.checked_add(entry.run.len as u64) == Some(run.address)
                    && entry.run.len + run.len <= limit =>
            {
                entry.run.len += run.len;
                entry.next = host.after(run.len);
            }
            _ => {
                let made = Entry {
                    owner: place.owner,
                    first: host,
                    next: host.after(run.len),
                    run,
                };
                if let Some(whole) = entry.replace(made) {
                    // SAFETY: By the safety requirements.
                    if unsafe { !whole.push(list) } {
                        return false;
                    }
                }
            }
        }
        cursor.advance(run.len);
    }
    // SAFETY: By the safety requirements.
    entry.is_some_and(|entry| unsafe { entry.push(list) })
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
pub(super) unsafe extern "C" fn dma_map_sg_attrs<T: Target>(
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
    if let (Some(peer), true) = (&peer, whole) {
        let mut taken = 0;
        // SAFETY: By the safety requirements.
        for entry in unsafe { entries(sgl, nents) } {
            // SAFETY: As above; each has a page.
            let Some((owner, address)) = (unsafe { entry_address::<T>(entry, peer) }) else {
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
            owner.handed_out(peer, address, len);
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
            each_part::<T>(entry, |owner, at, len| {
                fail(owner, at, len, peer.as_deref())
            });
            bindings::nvfs_helper_sg_set_dma(entry, 0, 0);
        }
    }
    IO_ERROR
}

/// # Safety
///
/// Only for storage drivers, with a list that [`dma_map_sg_attrs`] was called with.
pub(super) unsafe extern "C" fn dma_unmap_sg<T: Target>(
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

/// # Safety
///
/// Only for storage drivers, with a list of their own.
pub(super) unsafe extern "C" fn rdma_info<T: Target>(
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
