// SPDX-License-Identifier: GPL-2.0

//! Functions of other modules, looked up at run time.
//!
//! Only GPL-only exports are found; the kernel itself says so in its log when it refuses another.
//!
//! C header: `include/linux/module.h`.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// An exported symbol of another module, which cannot be unloaded meanwhile.
///
/// # Invariants
///
/// `address` was given by `__symbol_get(name)`, once for this object.
pub struct Symbol {
    name: &'static CStr,
    address: NonNull<c_void>,
}

// SAFETY: A counted reference on a module.
unsafe impl Send for Symbol {}
// SAFETY: As above.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// Looks `name` up and holds its module. May sleep.
    pub fn get(name: &'static CStr) -> Option<Self> {
        // SAFETY: `name` is a C string.
        let address = unsafe { bindings::__symbol_get(name.as_char_ptr()) };
        // INVARIANT: As returned.
        NonNull::new(address).map(|address| Self { name, address })
    }

    /// The symbol's address, valid while `self` lives.
    pub(crate) fn address(&self) -> NonNull<c_void> {
        self.address
    }
}

impl Drop for Symbol {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::__symbol_put(self.name.as_char_ptr()) }
    }
}
