// SPDX-License-Identifier: GPL-2.0

//! The functions of the table for the block layer's iterator: contract section 16.

use super::{
    give_back,
    request::{
        fail_request,
        is_of_transfer,
        is_plain,
        is_usable,
        owner,
        Cursor,
        Owner,
        Start, //
    },
    resolve,
    room,
    shared::{
        Handle,
        Shares, //
    },
    Fault,
    Segment,
    Target,
    IO_ERROR, //
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
    prelude::*,
    sync::aref::ARef, //
};

/// The next segment of a request whose pages are all shadow pages, all of it of one owner. It begins
/// at the cursor, where `start` is. Moves the cursor behind it.
#[inline(always)] // Saves a small request from moving the start about.
fn next_segment<T: Target>(
    cursor: &mut Cursor,
    peer: &Function,
    start: Start<T>,
) -> Result<Segment<T>, Fault> {
    let (place, at) = start.found;
    let mut len = start.piece.len.min(room(&place, start.piece.offset));
    let owner = place.owner;
    let mut whole = owner.begin(at, len, peer).ok_or(Fault::NoAddress)?;
    let mut run = whole;
    loop {
        cursor.advance(run.len);
        if run.len < len {
            break;
        }
        let Some(piece) = cursor.piece() else {
            break;
        };
        // SAFETY: The piece is part of the request that the cursor is in.
        let Some((place, at)) = (unsafe { resolve::<T>(piece.page, piece.offset) }) else {
            break;
        };
        len = piece.len.min(room(&place, piece.offset));
        run = place.owner.bus(at, len, peer).ok_or(Fault::NoAddress)?;
        let follows = whole.address.checked_add(whole.len as u64) == Some(run.address);
        if !follows || !run.joins || !core::ptr::eq(&*owner, &*place.owner) {
            break;
        }
        owner.started(at, run.len);
        whole.len += run.len;
    }
    // Last, so that no failure above leaves it held.
    match owner.hold() {
        true => Ok((owner, whole)),
        false => Err(Fault::NoAddress),
    }
}

/// One step of the iterator: 1 with a segment; 0 without, and then the status tells. The segment
/// begins at the cursor, where `start` is. `keep` is given the segment, with a reference on its owner
/// that ends when it is given back, and the cursor behind it; it returns the request's cookie, or
/// `None` if the segment cannot be kept.
///
/// # Safety
///
/// The arguments are those of a driver that maps `request` for `device`.
#[inline(always)]
unsafe fn step<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    iter: *mut bindings::blk_dma_iter,
    mut cursor: Cursor,
    start: Start<T>,
    keep: impl FnOnce(Segment<T>, &Cursor) -> Option<*mut c_void>,
) -> (c_int, *mut c_void) {
    // SAFETY: By the safety requirements.
    let peer = unsafe { Function::borrow(device) };
    // SAFETY: As above.
    let kept = match (&peer, unsafe { is_usable(request) }) {
        (Some(peer), true) => match next_segment::<T>(&mut cursor, peer, start) {
            Ok((owner, run)) => {
                owner.handed_out(peer, run.address, run.len);
                keep((owner, run), &cursor).map(|cookie| (cookie, run))
            }
            Err(_) => None,
        },
        _ => None,
    };
    let Some((cookie, run)) = kept else {
        // SAFETY: By the safety requirements.
        unsafe { refuse::<T>(request, iter, peer.as_deref()) };
        return (0, null_mut());
    };
    // SAFETY: The iterator is the driver's to be written by us.
    unsafe {
        (*iter).iter.bio = cursor.bio;
        (*iter).iter.iter = cursor.iter;
        (*iter).addr = run.address;
        // A request has at most `MAX_PAYLOAD` bytes.
        (*iter).len = run.len as u32;
        (*iter).status = 0;
    }
    (1, cookie)
}

/// Keeps a segment of a request of one owner, who is the cookie.
fn keep_alone<T: Target>((owner, _): Segment<T>) -> *mut c_void {
    // Given back by `dma_unmap_page`.
    ARef::into_raw(owner).as_ptr().cast()
}

/// Keeps a later segment of a request as the first one was. `None`, and it was given back, when that
/// cannot be.
///
/// # Safety
///
/// `request` is being mapped.
unsafe fn keep_next<T: Target>(
    request: *mut bindings::request,
    segment: Segment<T>,
    last: bool,
) -> Option<*mut c_void> {
    let (owner, run) = &segment;
    // SAFETY: By the safety requirements.
    let first = unsafe { Cursor::new((*request).bio) }.piece();
    // SAFETY: The piece is part of the request.
    let first = first.and_then(|piece| unsafe { resolve::<T>(piece.page, piece.offset) });
    let Some((place, _)) = first else {
        owner.release(run.address, run.len);
        return None;
    };
    let shares = place.owner.shares();
    if shares.has(request) {
        return shares.add(request, segment, last).then(null_mut);
    }
    if !core::ptr::eq(&*place.owner, &**owner) {
        owner.release(run.address, run.len);
        return None;
    }
    Some(keep_alone(segment))
}

/// Refuses a request that has shadow pages, and that was to be mapped for `peer`, if it is known.
///
/// # Safety
///
/// As for [`step`].
unsafe fn refuse<T: Target>(
    request: *mut bindings::request,
    iter: *mut bindings::blk_dma_iter,
    peer: Option<&Function>,
) {
    // SAFETY: By the safety requirements.
    unsafe {
        (*iter).status = bindings::nvfs_blk_sts_NVFS_BLK_STS_IOERR as bindings::blk_status_t;
        fail_request::<T>((*request).bio, peer);
    }
}

/// # Safety
///
/// Only for storage drivers that map `request`, with an `iter` of their own.
pub(super) unsafe extern "C" fn iter_start<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    _state: *mut bindings::dma_iova_state,
    iter: *mut bindings::blk_dma_iter,
    cookie: *mut *mut c_void,
) -> c_int {
    if iter.is_null() {
        return 0;
    }
    // Then nothing is looked at: these are the requests of others.
    if T::space().is_empty() {
        // SAFETY: By the safety requirements.
        unsafe { (*iter).status = 0 };
        return 0;
    }
    // SAFETY: By the safety requirements.
    if unsafe { !is_plain(request) } {
        return 0;
    }
    // SAFETY: As above.
    let bio = unsafe { (*request).bio };
    // SAFETY: As above.
    let (start, several) = match unsafe { owner::<T>(bio) } {
        Owner::None => {
            // SAFETY: As above.
            unsafe { (*iter).status = 0 };
            return 0;
        }
        Owner::Mixed(owner) => {
            // SAFETY: As above.
            if unsafe { !is_of_transfer(bio) } {
                // SAFETY: As above.
                unsafe { (*iter).status = 0 };
                return 0;
            }
            owner.fault(Fault::Mixed);
            // SAFETY: As above.
            unsafe { refuse::<T>(request, iter, None) };
            return 0;
        }
        Owner::One(start) => (start, false),
        Owner::Several(start) => (start, true),
    };
    start.found.0.owner.shares().begin(request);
    let first = several.then(|| start.found.0.owner.clone());
    let keep = |segment, behind: &Cursor| match first {
        Some(first) => Shares::open(first, request, segment, behind.is_at_end()),
        None => Some(keep_alone(segment)),
    };
    // SAFETY: As above.
    let cursor = unsafe { Cursor::new(bio) };
    // SAFETY: As above.
    let (result, made) = unsafe { step::<T>(request, device, iter, cursor, start, keep) };
    if result == 1 && !cookie.is_null() {
        // SAFETY: As above.
        unsafe { *cookie = made };
    }
    result
}

/// # Safety
///
/// As for [`iter_start`], after a call of it for the same request.
pub(super) unsafe extern "C" fn iter_next<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    _state: *mut bindings::dma_iova_state,
    iter: *mut bindings::blk_dma_iter,
) -> c_int {
    if iter.is_null() || request.is_null() {
        return 0;
    }
    // SAFETY: By the safety requirements.
    let cursor = unsafe {
        Cursor {
            bio: (*iter).iter.bio,
            iter: (*iter).iter.iter,
        }
    };
    if cursor.is_at_end() {
        return 0;
    }
    // SAFETY: As above.
    unsafe { go_on::<T>(request, device, iter, cursor) }
}

/// Goes on with a request that has data left, apart as most have not.
///
/// # Safety
///
/// As for [`iter_next`]; the cursor is where `iter` is.
#[inline(never)]
unsafe fn go_on<T: Target>(
    request: *mut bindings::request,
    device: *mut bindings::device,
    iter: *mut bindings::blk_dma_iter,
    cursor: Cursor,
) -> c_int {
    let Some(piece) = cursor.piece() else {
        return 0;
    };
    // SAFETY: The piece is part of the request.
    let Some(found) = (unsafe { resolve::<T>(piece.page, piece.offset) }) else {
        return 0;
    };
    let start = Start { piece, found };
    let keep = |segment, behind: &Cursor| {
        // SAFETY: By the safety requirements.
        unsafe { keep_next::<T>(request, segment, behind.is_at_end()) }
    };
    // SAFETY: As above.
    unsafe { step::<T>(request, device, iter, cursor, start, keep) }.0
}

/// # Safety
///
/// `cookie` is null, or what [`iter_start`] gave, once for each segment.
pub(super) unsafe extern "C" fn dma_unmap_page<T: Target>(
    _device: *mut bindings::device,
    cookie: *mut c_void,
    address: bindings::dma_addr_t,
    len: usize,
    _direction: bindings::dma_data_direction,
) -> c_int {
    if let Some(handle) = Handle::<T>::of_cookie(cookie) {
        // SAFETY: By the safety requirements the request has a segment out.
        unsafe { Handle::give_back(handle) };
        return 0;
    }
    let Some(object) = NonNull::new(cookie.cast::<Reaped<T>>()) else {
        return IO_ERROR;
    };
    // SAFETY: By the safety requirements the object has a segment out, which holds it.
    unsafe { give_back(object, address, len) };
    0
}
