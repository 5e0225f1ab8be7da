// SPDX-License-Identifier: GPL-2.0

pub use crate::{
    error::{Error, Result, EBUSY, EFAULT, EINTR, EINVAL, EIO, ENODEV, ENOMEM, EOVERFLOW},
    init::{InPlaceInit, PinInit},
    pin_init, try_pin_init,
};
pub use core::{
    ffi::{c_int, c_uint, c_void, CStr},
    pin::Pin,
};
pub use host_pin::pin_data;

/// As the kernel has it.
#[allow(non_camel_case_types)]
pub type c_long = isize;

/// How to allocate: it never fails.
#[derive(Clone, Copy)]
pub struct Flags;

pub const GFP_KERNEL: Flags = Flags;

pub type KBox<T> = Box<T>;

pub trait CStrExt {
    fn as_char_ptr(&self) -> *const core::ffi::c_char;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const core::ffi::c_char {
        self.as_ptr()
    }
}

/// A vector that grows by request.
pub struct KVec<T>(Vec<T>);

impl<T> KVec<T> {
    pub fn with_capacity(capacity: usize, _flags: Flags) -> Result<Self> {
        Ok(Self(Vec::with_capacity(capacity)))
    }

    pub fn push(&mut self, value: T, _flags: Flags) -> Result {
        self.0.push(value);
        Ok(())
    }
}

impl<T> core::ops::Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
