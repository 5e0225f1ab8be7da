// SPDX-License-Identifier: GPL-2.0

//! The peers that pinned memory is known to, and those that want it to be.

use crate::{
    alloc::GFP_CHARGED,
    bindings,
    pci::Function, //
};
use core::{
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::prelude::*;

/// The peers of one pin: a list that only grows, so that it can be read in any context.
///
/// # Invariants
///
/// `first`, and `next` of each element, is null or an element that lives as long as the list.
pub(super) struct Peers {
    first: AtomicPtr<Peer>,
    /// Each is null, or a counted reference on a function that had no element when it was set.
    wanted: [AtomicPtr<bindings::pci_dev>; WANTED],
}

/// How many peers can be wanted at a time: as many as the disks of one transfer that nobody foresaw.
/// Of more, some are wanted again by the next transfer.
const WANTED: usize = 4;

pub(super) struct Peer {
    function: Function,
    /// The bus address of each GPU page for it.
    addresses: KVVec<u64>,
    next: *mut Peer,
}

impl Peer {
    /// For [`Peers::add`]. May sleep. Fails with `ENOMEM`.
    pub(super) fn new(function: Function, addresses: KVVec<u64>) -> Result<KBox<Self>> {
        let peer = Self {
            function,
            addresses,
            next: null_mut(),
        };
        Ok(KBox::new(peer, GFP_CHARGED)?)
    }
}

// SAFETY: The pointers own their elements, which may be sent and shared.
unsafe impl Send for Peers {}
// SAFETY: As above.
unsafe impl Sync for Peers {}

impl Peers {
    pub(super) fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            first: AtomicPtr::new(null_mut()),
            wanted: [const { AtomicPtr::new(null_mut()) }; WANTED],
        }
    }

    /// Callable in any context.
    pub(super) fn want(&self, peer: &Function) {
        let wanted = peer.clone().into_raw();
        for slot in &self.wanted {
            // INVARIANT: The reference goes there.
            match slot.compare_exchange(null_mut(), wanted, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) if other == wanted => break,
                Err(_) => (),
            }
        }
        // SAFETY: The reference just taken. It is not the last one: the caller has another.
        drop(unsafe { Function::from_raw(wanted) });
    }

    /// Whether there is one that is wanted.
    pub(super) fn are_wanted(&self) -> bool {
        let is_set = |slot: &AtomicPtr<bindings::pci_dev>| !slot.load(Ordering::Relaxed).is_null();
        self.wanted.iter().any(is_set)
    }

    /// Takes those that are wanted, one after the other.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Function> + '_ {
        self.wanted.iter().filter_map(Self::take)
    }

    /// The peer of one of the places of `wanted`, which is free then.
    fn take(wanted: &AtomicPtr<bindings::pci_dev>) -> Option<Function> {
        // SAFETY: By the type invariants; the reference is ours from now on.
        unsafe { Function::from_raw(wanted.swap(null_mut(), Ordering::Acquire)) }
    }

    /// Adds a peer that was made ready.
    pub(super) fn add(&self, peer: KBox<Peer>) {
        let peer = KBox::into_raw(peer);
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: Not yet seen by others.
            unsafe { (*peer).next = first };
            // INVARIANT: A new element, and `next` was in the list.
            match self.first.compare_exchange_weak(
                first,
                peer,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    pub(super) fn find(&self, peer: &Function) -> Option<&[u64]> {
        let mut at = self.first.load(Ordering::Acquire);
        // SAFETY: By the type invariants.
        while let Some(found) = unsafe { at.as_ref() } {
            if found.function == *peer {
                return Some(&found.addresses);
            }
            at = found.next;
        }
        None
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.wanted().for_each(drop);
        let mut at = *self.first.get_mut();
        while !at.is_null() {
            // SAFETY: By the type invariants; nobody else has the list any more.
            let peer = unsafe { KBox::from_raw(at) };
            at = peer.next;
        }
    }
}
