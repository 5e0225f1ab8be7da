// SPDX-License-Identifier: GPL-2.0

//! Values of fixed size from and to the memory of the calling process.
//!
//! The kernel crate's `UserSlice` does the same for slices, with checks of where in kernel memory
//! the slice is, which cost more than such a copy.
//!
//! C header: `include/linux/uaccess.h`.

use crate::bindings;
use kernel::prelude::*;
use zerocopy::Immutable;

/// Reads a value. May sleep. Fails with `EFAULT`.
#[inline]
pub fn read<T: FromBytes + IntoBytes>(address: usize) -> Result<T> {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    let from = core::ptr::without_provenance(address);
    // SAFETY: `bytes` is memory of ours, for any bytes; the address is checked in the function.
    let left = unsafe { bindings::_copy_from_user(bytes.as_mut_ptr().cast(), from, bytes.len()) };
    if left == 0 {
        Ok(value)
    } else {
        Err(EFAULT)
    }
}

/// Writes a value. May sleep. Fails with `EFAULT`.
#[inline]
pub fn write<T: IntoBytes + Immutable>(address: usize, value: &T) -> Result {
    let bytes = value.as_bytes();
    let to = core::ptr::without_provenance_mut(address);
    // SAFETY: `bytes` is memory of ours, without padding; the address is checked in the function.
    let left = unsafe { bindings::_copy_to_user(to, bytes.as_ptr().cast(), bytes.len()) };
    if left == 0 {
        Ok(())
    } else {
        Err(EFAULT)
    }
}
