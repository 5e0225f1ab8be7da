// SPDX-License-Identifier: GPL-2.0

//! The data of a request of the block layer, and whose it is.

use super::{
    fail,
    resolve,
    room,
    Found,
    Target,
    MAX_PAYLOAD, //
};
use crate::{
    bindings,
    pci::Function,
    reaper::Reaped, //
};
use kernel::sync::aref::ARef;

/// A position in the data of a request.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub(super) bio: *mut bindings::bio,
    pub(super) iter: bindings::bvec_iter,
}

/// Bytes of one bvec of a request: `len` bytes, `offset` bytes behind the start of `page`.
pub(super) struct Piece {
    pub(super) page: *mut bindings::page,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Cursor {
    /// The start of a request.
    ///
    /// # Safety
    ///
    /// `bio` is null or the first bio of a request that is being mapped, and stays so while the
    /// cursor is used.
    pub(super) unsafe fn new(bio: *mut bindings::bio) -> Self {
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

    /// Whether no data is left.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.bio.is_null() || self.iter.bi_size == 0
    }

    /// What is left of the current bvec. `None` at the end.
    #[inline]
    pub(super) fn piece(&self) -> Option<Piece> {
        if self.is_at_end() {
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

    /// Whether there is nothing behind the next `bytes`.
    pub(super) fn ends_in(&self, bytes: usize) -> bool {
        if self.iter.bi_size as usize != bytes {
            return false;
        }
        // SAFETY: By the safety requirements of `new`.
        self.bio.is_null() || unsafe { (*self.bio).bi_next.is_null() }
    }

    /// Goes on by `bytes`, which are at most what [`piece`](Self::piece) has.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) {
        if self.is_at_end() {
            return;
        }
        // A piece is part of a bio, whose size has 32 bits.
        let step = u32::try_from(bytes).unwrap_or(u32::MAX);
        // SAFETY: By the safety requirements of `new`, the iterator is inside the bio's table.
        unsafe {
            bindings::nvfs_helper_bvec_iter_advance((*self.bio).bi_io_vec, &mut self.iter, step)
        };
        self.settle();
    }
}

/// What is at a cursor, in shadow memory.
pub(super) struct Start<T: Send + Sync + 'static> {
    pub(super) piece: Piece,
    pub(super) found: Found<T>,
}

/// Whose pages a request has.
pub(super) enum Owner<T: Send + Sync + 'static> {
    /// Ordinary pages only.
    None,
    /// Shadow pages of one owner only, beginning with this.
    One(Start<T>),
    /// Shadow pages of several owners, beginning with this.
    Several(Start<T>),
    /// Shadow pages, this owner's first, and others.
    Mixed(ARef<Reaped<T>>),
}

/// Looks at all pages of a request.
///
/// # Safety
///
/// As for [`Cursor::new`].
#[inline(always)] // Saves a small request from moving the start about.
pub(super) unsafe fn owner<T: Target>(bio: *mut bindings::bio) -> Owner<T> {
    if T::space().is_empty() {
        return Owner::None;
    }
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    let mut ordinary = false;
    let mut first: Option<Start<T>> = None;
    let mut several = false;
    while let Some(piece) = cursor.piece() {
        let mut len = piece.len;
        // SAFETY: The piece is part of the request.
        match unsafe { resolve::<T>(piece.page, piece.offset) } {
            None => ordinary = true,
            Some(found) => {
                len = len.min(room(&found.0, piece.offset));
                match &first {
                    None => first = Some(Start { piece, found }),
                    Some(start) => {
                        several |= !core::ptr::eq(&*start.found.0.owner, &*found.0.owner);
                    }
                }
            }
        }
        if cursor.ends_in(len) {
            break;
        }
        cursor.advance(len);
    }
    match first {
        None => Owner::None,
        Some(start) if ordinary => Owner::Mixed(start.found.0.owner),
        Some(start) if several => Owner::Several(start),
        Some(start) => Owner::One(start),
    }
}

/// Whether a request with shadow pages and others is of a transfer of ours, which must not be. These
/// are never merged with what has another priority; else it is I/O that a process does on its shadow
/// memory by itself, made one request with others', who must not fail for that: the memory is ordinary
/// memory.
///
/// # Safety
///
/// `bio` is the first one of a request that is being mapped.
pub(super) unsafe fn is_of_transfer(bio: *mut bindings::bio) -> bool {
    // SAFETY: By the safety requirements.
    unsafe { bindings::nvfs_helper_bio_is_set_apart(bio) }
}

/// No part of a request can be moved by DMA to device memory, which `peer` was to do, if it is known.
///
/// # Safety
///
/// As for [`Cursor::new`].
pub(super) unsafe fn fail_request<T: Target>(bio: *mut bindings::bio, peer: Option<&Function>) {
    // SAFETY: By the safety requirements.
    let mut cursor = unsafe { Cursor::new(bio) };
    while let Some(piece) = cursor.piece() {
        let mut len = piece.len;
        // SAFETY: The piece is part of the request.
        if let Some((place, at)) = unsafe { resolve::<T>(piece.page, piece.offset) } {
            len = len.min(room(&place, piece.offset));
            fail(&**place.owner, at, len, peer);
        }
        cursor.advance(len);
    }
}

/// A request that can be ours at all: a plain read or write with data.
///
/// # Safety
///
/// `request` is null or a request that is being mapped.
pub(super) unsafe fn is_plain(request: *mut bindings::request) -> bool {
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
pub(super) unsafe fn is_usable(request: *mut bindings::request) -> bool {
    // SAFETY: By the safety requirements.
    unsafe {
        !bindings::nvfs_helper_rq_has_integrity(request)
            && bindings::nvfs_helper_rq_payload_bytes(request) <= MAX_PAYLOAD
    }
}
