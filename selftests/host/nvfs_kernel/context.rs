// SPDX-License-Identifier: GPL-2.0

//! Contexts, RCU and the life of the module's code.

use core::cell::Cell;
use loom::{
    cell::UnsafeCell,
    sync::{RwLock, RwLockReadGuard},
};

loom::thread_local! {
    static ATOMIC: Cell<bool> = Cell::new(false);
    static KILLED: Cell<bool> = Cell::new(false);
}

loom::lazy_static! {
    static ref READERS: RwLock<()> = RwLock::new(());
    static ref CODE: Code = Code(UnsafeCell::new(()));
}

struct Code(UnsafeCell<()>);

// SAFETY: The checker's cell finds out itself who meets whom.
unsafe impl Sync for Code {}

/// What the module's code does in an interrupt; also a read-side critical section of RCU.
pub fn interrupt<R>(work: impl FnOnce() -> R) -> R {
    let reader = read();
    ATOMIC.with(|atomic| atomic.set(true));
    let result = work();
    CODE.0.with(|_| ());
    ATOMIC.with(|atomic| atomic.set(false));
    drop(reader);
    result
}

pub fn may_sleep() -> bool {
    !ATOMIC.with(Cell::get)
}

/// The thread gets a fatal signal. It may be late in looking, so it need not come later.
pub fn kill() {
    KILLED.with(|killed| killed.set(true));
}

pub fn is_killed() -> bool {
    KILLED.with(Cell::get)
}

/// A read-side critical section. The one of an interrupt is enough.
pub fn read() -> Option<RwLockReadGuard<'static, ()>> {
    may_sleep().then(|| READERS.read().unwrap())
}

/// Waits for the read-side critical sections that have begun.
pub fn synchronize() {
    assert!(may_sleep(), "sleeping in an interrupt");
    drop(READERS.write().unwrap());
}

/// The module's code is used.
pub fn run_code() {
    CODE.0.with(|_| ());
}

/// The module's code goes: whatever still runs is found.
pub fn unload() {
    CODE.0.with_mut(|_| ());
}
