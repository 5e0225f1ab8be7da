// SPDX-License-Identifier: GPL-2.0

//! hello

use nvfs_bindings as bindings;

/// hello
pub fn hello() -> bool {
    // SAFETY: x
    unsafe { bindings::nvfs_helper_is_x86() }
}
