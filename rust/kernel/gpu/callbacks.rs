// SPDX-License-Identifier: GPL-2.0

//! The free callback of pinned memory.
//!
//! It is given a number, not a pointer: the GPU driver may call it at any moment, also while we are
//! giving the pages back, and a number that is no longer known is nothing to follow. Those that know
//! their number are counted, and the pin does not end before the last of them.
//!
//! `PINS` is a spinlock, so that a callback sleeps only while it is counted, and who unloads the
//! module has only instructions to wait for.
//!
//! The host tests run this file in all orders of its steps.

use crate::completion::Event;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        global_lock,
        Arc, //
    },
};

global_lock! {
    // SAFETY: Initialized by `init`, before any use.
    unsafe(uninit) static PINS: SpinLock<Pins> = Pins { next: 1, tree: None };
}

/// The pins that a free callback may be for, by number. Numbers are never used again.
struct Pins {
    next: usize,
    tree: Option<RBTree<usize, Known>>,
}

impl Pins {
    fn find(&mut self, number: usize) -> Option<&mut Known> {
        self.tree.as_mut()?.get_mut(&number)
    }
}

/// A pin that its number leads to.
struct Known {
    pin: Arc<dyn Freed>,
    /// Callbacks under way.
    running: usize,
    /// No callback begins any more; the pin waits for those under way.
    ended: bool,
}

/// # Safety
///
/// To be called once, before anything else of this file is used.
pub(super) unsafe fn init() {
    // SAFETY: By the safety requirements.
    unsafe { PINS.init() };
}

/// What the free callback does.
pub(super) trait Freed: Send + Sync {
    fn freed(&self);

    /// No callback is under way, and none begins any more. Does not sleep.
    fn callbacks_over(&self);
}

/// Makes `pin` known to the free callback; returns its number.
pub(super) fn register(pin: Arc<dyn Freed>) -> Result<usize> {
    let reservation = RBTreeNodeReservation::new(GFP_KERNEL)?;
    let known = Known {
        pin,
        running: 0,
        ended: false,
    };
    let mut pins = PINS.lock();
    let number = pins.next;
    pins.next = number.checked_add(1).ok_or(EOVERFLOW)?;
    pins.tree
        .get_or_insert_with(RBTree::new)
        .insert(reservation.into_node(number, known));
    Ok(number)
}

/// Undoes [`register`]: a callback that comes later does nothing, and none is under way any more when
/// this returns. `over` is what the pin's `callbacks_over` tells. Sleeps.
pub(super) fn unregister(number: usize, over: &Event) {
    let mut pins = PINS.lock();
    let is_waited_for = pins.find(number).is_some_and(|known| {
        known.ended = true;
        known.running > 0
    });
    drop(pins);
    if is_waited_for {
        over.wait();
    }
    let mut pins = PINS.lock();
    let node = pins
        .tree
        .as_mut()
        .and_then(|tree| tree.remove_node(&number));
    drop(pins);
    drop(node);
}

/// # Safety
///
/// Any argument is safe.
pub(super) unsafe extern "C" fn free_callback(data: *mut c_void) {
    let number = data.addr();
    let Some(pin) = begin_callback(number) else {
        return;
    };
    pin.freed();
    // Not the last reference, which could sleep: `unregister` keeps that of `PINS` until we are over.
    drop(pin);
    end_callback(number);
}

/// Counts a callback; the pin that it is for, if it still is.
fn begin_callback(number: usize) -> Option<Arc<dyn Freed>> {
    let mut pins = PINS.lock();
    let known = pins.find(number).filter(|known| !known.ended)?;
    known.running += 1;
    Some(known.pin.clone())
}

/// Undoes [`begin_callback`]. Nothing of the pin is there any more after it.
fn end_callback(number: usize) {
    if let Some(known) = PINS.lock().find(number) {
        // OVERFLOW: `begin_callback` has counted this one.
        known.running -= 1;
        if known.running == 0 && known.ended {
            known.pin.callbacks_over();
        }
    }
}
