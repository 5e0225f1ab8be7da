// SPDX-License-Identifier: GPL-2.0

//! Functions of other modules, looked up at run time.
//!
//! Only GPL-only exports are found; the kernel itself says so in its log when it refuses another.
//!
//! C headers: `include/linux/module.h`, `include/linux/kprobes.h`.

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

impl Symbol {
    /// The module that has it.
    pub fn module(&self) -> ModuleName {
        ModuleName::of_function(self.address.as_ptr())
    }
}

/// Whether the kernel or a module has a function `name`, exported or not. `false` also where the
/// kernel cannot tell. May sleep, and take a while.
pub(crate) fn exists(name: &CStr) -> bool {
    // SAFETY: `name` is a C string.
    unsafe { bindings::nvfs_helper_has_function(name.as_char_ptr()) }
}

/// The name of a module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ModuleName([u8; 56]);

impl ModuleName {
    /// The module that a function is in. May be slow.
    pub(crate) fn of_function(function: *const c_void) -> Self {
        let mut name = [0; 56];
        // SAFETY: The kernel looks the address up, whatever it is; the name has room.
        unsafe {
            bindings::nvfs_helper_module_name(function, name.as_mut_ptr().cast(), name.len())
        };
        Self(name)
    }

    /// The function was in the kernel itself, or nowhere.
    pub fn is_none(&self) -> bool {
        self.0.first() == Some(&0)
    }

    /// Whether it is `name`.
    pub fn is(&self, name: &str) -> bool {
        self.0
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.first())
            == Some(&0)
    }
}

impl Drop for Symbol {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::__symbol_put(self.name.as_char_ptr()) }
    }
}
