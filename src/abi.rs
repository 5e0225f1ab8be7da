// SPDX-License-Identifier: GPL-2.0

//! The arguments of the ioctls, as user space lays them out: contract section 4 and
//! `include/nvfs_ioctl.h`.

use core::mem::offset_of;
use kernel::{
    prelude::*,
    static_assert,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};
use zerocopy_derive::Immutable;

/// Bytes of a block, the unit of all geometry here.
pub(crate) const BLOCK: u64 = 4096;

/// Size of the union of all arguments.
pub(crate) const ARG_LEN: usize = 104;

/// Requests.
pub(crate) const REMOVE: u32 = 0x4004_7401;
pub(crate) const READ: u32 = 0x4004_7402;
pub(crate) const MAP: u32 = 0x4004_7403;
pub(crate) const WRITE: u32 = 0x4004_7404;
pub(crate) const SET_RDMA_REG_INFO: u32 = 0x4004_7405;
pub(crate) const GET_RDMA_REG_INFO: u32 = 0x4004_7406;
pub(crate) const CLEAR_RDMA_REG_INFO: u32 = 0x4004_7407;

/// Where `ioctl_return` is in the arguments of READ, WRITE and MAP.
pub(crate) const RETURN_OFFSET: usize = 32;

/// Argument of MAP.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct MapArgs {
    pub(crate) size: i64,
    pub(crate) pdevinfo: u64,
    pub(crate) cpuvaddr: u64,
    pub(crate) gpuvaddr: u64,
    pub(crate) end_fence_addr: u64,
    pub(crate) sbuf_block: u32,
    pub(crate) is_bounce_buffer: u16,
    _padding: [u8; 2],
}

static_assert!(size_of::<MapArgs>() == 48);
static_assert!(offset_of!(MapArgs, end_fence_addr) == RETURN_OFFSET);
static_assert!(offset_of!(MapArgs, is_bounce_buffer) == 44);

/// Argument of READ and WRITE, and a batch entry.
///
/// `devptroff` is not aligned, so it and what follows are given as the halves they consist of.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct IoArgs {
    pub(crate) cpuvaddr: u64,
    pub(crate) offset: i64,
    pub(crate) size: u64,
    pub(crate) end_fence_value: u64,
    pub(crate) ioctl_return: i64,
    pub(crate) inum: u64,
    pub(crate) generation: u32,
    pub(crate) majdev: u32,
    pub(crate) mindev: u32,
    devptroff: [u8; 8],
    _file_padding: [u8; 4],
    pub(crate) fd: i32,
    flags: u8,
    _padding: [u8; 3],
}

static_assert!(size_of::<IoArgs>() == 80);
static_assert!(offset_of!(IoArgs, ioctl_return) == RETURN_OFFSET);
static_assert!(offset_of!(IoArgs, devptroff) == 60);
static_assert!(offset_of!(IoArgs, fd) == 72);
static_assert!(offset_of!(IoArgs, flags) == 76);

impl IoArgs {
    /// Bytes into the GPU buffer.
    pub(crate) fn device_offset(&self) -> u64 {
        u64::from_ne_bytes(self.devptroff)
    }

    /// The ioctl waits for the end.
    pub(crate) fn is_sync(&self) -> bool {
        self.flags & 0x01 != 0
    }

    /// READ may use a file that was opened only for writing.
    pub(crate) fn allow_reads(&self) -> bool {
        self.flags & 0x04 != 0
    }
}

/// Reads an argument from the address that the user gave. Fails with `EFAULT`.
pub(crate) fn read<T: FromBytes + IntoBytes>(arg: usize) -> Result<T> {
    let mut value = T::new_zeroed();
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .reader()
        .read_slice(value.as_mut_bytes())?;
    Ok(value)
}

/// Stores `ioctl_return` of READ, WRITE or MAP. Fails with `EFAULT`.
pub(crate) fn write_return(arg: usize, value: i64) -> Result {
    let field = arg.checked_add(RETURN_OFFSET).ok_or(EFAULT)?;
    UserSlice::new(UserPtr::from_addr(field), size_of::<i64>())
        .writer()
        .write_slice(value.as_bytes())
}
