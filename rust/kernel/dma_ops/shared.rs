// SPDX-License-Identifier: GPL-2.0

//! Requests with pages of several owners: the block layer makes one request of what is next to one
//! another on a disk, whoever it is from.
//!
//! A storage driver keeps one cookie for a request, and does not tell which of its segments it gives
//! back. So such a request has an object of its own, whose address is in the cookie. All segments go
//! back to their owners with the last one of the request. The object is found again by the owner of
//! the request's first page.

use super::{
    Run,
    Segment,
    Target, //
};
use crate::{
    bindings,
    reaper::Reaped, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_spinlock_irq,
        SpinLockIrq, //
    },
};

/// Set in the cookie of such a request. Objects are at even addresses.
const MARK: usize = 1;

/// A segment that a storage driver has. Dropping it gives it back to its owner.
struct Out<T: Target> {
    owner: ARef<Reaped<T>>,
    run: Run,
}

// SAFETY: A counted reference on what is `Send` and `Sync`; said here as a `T` has these itself.
unsafe impl<T: Target> Send for Out<T> {}

impl<T: Target> Drop for Out<T> {
    fn drop(&mut self) {
        self.owner.release(self.run.address, self.run.len);
    }
}

/// What the cookie of a request refers to.
pub(super) struct Handle<T: Target> {
    /// Who has it in his [`Shares`].
    first: ARef<Reaped<T>>,
}

// SAFETY: As for `Out`.
unsafe impl<T: Target> Send for Handle<T> {}

impl<T: Target> Handle<T> {
    /// The handle of a cookie, if it is that of a request of several owners.
    pub(super) fn of_cookie(cookie: *mut c_void) -> Option<NonNull<Self>> {
        if cookie.addr() & MARK == 0 {
            return None;
        }
        NonNull::new(cookie.wrapping_byte_sub(MARK).cast())
    }

    /// Gives one of the request's segments back. Callable in any context.
    ///
    /// # Safety
    ///
    /// `this` is a handle with a segment out.
    pub(super) unsafe fn give_back(this: NonNull<Self>) {
        // SAFETY: By the safety requirements it lives, until the segment is counted below.
        let first = unsafe { this.as_ref() }.first.clone();
        // Without the lock, as this ends what it has.
        drop(first.shares().count_back(this));
    }
}

/// A request.
struct Shared<T: Target> {
    /// Its address, 0 when that is another request's now.
    key: usize,
    /// `None` when all segments were given back before the whole request was mapped: what is left of
    /// it must not be, as the driver's cookie leads nowhere now.
    handle: Option<KBox<Handle<T>>>,
    /// All that were handed out; the first is of `handle.first`.
    segments: KVec<Out<T>>,
    /// How many of them were given back.
    back: usize,
    /// The whole request was mapped.
    complete: bool,
}

/// What a request had: its handle, and its segments, which go back to their owners.
type Had<T> = (Option<KBox<Handle<T>>>, KVec<Out<T>>);

/// How many requests are remembered whose mapping was given up. A driver that goes on with an older
/// one has mapped and given up as many meanwhile.
const MAX_GIVEN_UP: usize = 4;

/// The requests of several owners that begin with the pages of one object.
#[pin_data]
pub struct Shares<T: Target> {
    /// How many there are, to be looked at without the lock.
    count: Atomic<usize>,
    #[pin]
    requests: SpinLockIrq<KVec<Shared<T>>>,
}

impl<T: Target> Shares<T> {
    /// None.
    #[allow(clippy::new_ret_no_self, reason = "pinned in place")]
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            count: Atomic::new(0),
            requests <- new_spinlock_irq!(KVec::new()),
        })
    }

    /// Whether there is none. Callable in any context.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// `request` is mapped from its start on. One of before at that address is over for the block
    /// layer, but its segments may be given back late.
    pub(super) fn begin(&self, request: *mut bindings::request) {
        if self.is_empty() {
            return;
        }
        let mut requests = self.requests.lock();
        requests.retain(|shared| shared.handle.is_some() || shared.key != request.addr());
        for shared in requests.iter_mut() {
            if shared.key == request.addr() {
                shared.key = 0;
            }
        }
        self.count.store(requests.len(), Relaxed);
    }

    /// Whether a segment of `request` was handed out.
    pub(super) fn has(&self, request: *mut bindings::request) -> bool {
        !self.is_empty()
            && self
                .requests
                .lock()
                .iter()
                .any(|shared| shared.key == request.addr())
    }

    /// Keeps the first segment of `request`, which is of `first`; `last`: there is none behind it.
    /// Returns the cookie; `None` when there is no memory, and then the segment was given back.
    pub(super) fn open(
        first: ARef<Reaped<T>>,
        request: *mut bindings::request,
        segment: Segment<T>,
        last: bool,
    ) -> Option<*mut c_void> {
        let (owner, run) = segment;
        let out = Out { owner, run };
        let mut segments = KVec::with_capacity(4, GFP_ATOMIC).ok()?;
        segments.push(out, GFP_ATOMIC).ok()?;
        let keeper = first.clone();
        let handle = KBox::new(Handle { first }, GFP_ATOMIC).ok()?;
        let cookie = core::ptr::from_ref(&*handle).cast_mut().cast();
        let shared = Shared {
            key: request.addr(),
            handle: Some(handle),
            segments,
            back: 0,
            complete: last,
        };
        let shares = keeper.shares();
        let mut requests = shares.requests.lock();
        requests.push(shared, GFP_ATOMIC).ok()?;
        shares.count.store(requests.len(), Relaxed);
        Some(<*mut c_void>::wrapping_byte_add(cookie, MARK))
    }

    /// Keeps another segment of `request`; `last`: there is none behind it. Returns whether it does; if
    /// not, the segment was given back.
    pub(super) fn add(
        &self,
        request: *mut bindings::request,
        segment: Segment<T>,
        last: bool,
    ) -> bool {
        let (owner, run) = segment;
        let out = Out { owner, run };
        let mut requests = self.requests.lock();
        match requests
            .iter_mut()
            .find(|shared| shared.key == request.addr() && shared.handle.is_some())
        {
            Some(shared) => {
                shared.complete = last;
                shared.segments.push(out, GFP_ATOMIC).is_ok()
            }
            None => false,
        }
    }

    /// Counts a segment that is given back; with the last one returns what the request had.
    fn count_back(&self, handle: NonNull<Handle<T>>) -> Option<Had<T>> {
        let mut requests = self.requests.lock();
        let is_it = |shared: &Shared<T>| {
            let theirs = shared.handle.as_deref();
            theirs.is_some_and(|theirs| core::ptr::eq(theirs, handle.as_ptr()))
        };
        let index = requests.iter().position(is_it)?;
        let shared = requests.get_mut(index)?;
        shared.back += 1;
        if shared.back < shared.segments.len() {
            return None;
        }
        let had = (
            shared.handle.take(),
            core::mem::replace(&mut shared.segments, KVec::new()),
        );
        if shared.complete || shared.key == 0 {
            let _ = requests.remove(index);
        }
        let given_up = |shared: &Shared<T>| shared.handle.is_none();
        if requests.iter().filter(|shared| given_up(shared)).count() > MAX_GIVEN_UP {
            let oldest = requests.iter().position(given_up);
            let _ = oldest.map(|index| requests.remove(index));
        }
        self.count.store(requests.len(), Relaxed);
        Some(had)
    }
}
