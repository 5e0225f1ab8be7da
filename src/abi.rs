// SPDX-License-Identifier: GPL-2.0

//! The arguments of the ioctls, as user space lays them out: contract section 4 and
//! `include/nvfs_ioctl.h`.

use core::mem::offset_of;
use kernel::{
    prelude::*,
    static_assert, //
};
use nvfs_kernel::user;
use zerocopy::Immutable;
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

pub(crate) const BATCH_IO: u32 = 0x4004_7408;

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

    /// Parts are cut by RDMA segments.
    pub(crate) fn use_rkeys(&self) -> bool {
        self.flags & 0x08 != 0
    }

    /// What a batch entry does: 0 reads, 1 writes. READ and WRITE ignore it.
    pub(crate) fn operation(&self) -> u8 {
        self.flags >> 4 & 0x7
    }

    /// READ may use a file that was opened only for writing.
    pub(crate) fn allow_reads(&self) -> bool {
        self.flags & 0x04 != 0
    }
}

/// Argument of BATCH_IO.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct BatchArgs {
    /// For logs only.
    pub(crate) ctx_id: u64,
    pub(crate) nents: u64,
    /// User address of the entries.
    entries: u64,
}

static_assert!(size_of::<BatchArgs>() == 24);

impl BatchArgs {
    /// Reads an entry. Fails with `EFAULT`.
    pub(crate) fn entry(&self, index: usize) -> Result<IoArgs> {
        let start = usize::try_from(self.entries).map_err(|_| EFAULT)?;
        let offset = index.checked_mul(size_of::<IoArgs>()).ok_or(EFAULT)?;
        read(start.checked_add(offset).ok_or(EFAULT)?)
    }
}

/// Argument of SET_RDMA_REG_INFO.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct SetRdmaArgs {
    pub(crate) cpuvaddr: u64,
    pub(crate) gid: [u64; 2],
    pub(crate) qp_num: u32,
    pub(crate) lid: u16,
    pub(crate) flags: u8,
    pub(crate) version: u8,
    pub(crate) dc_key: u32,
    pub(crate) rkey: [u32; 16],
    pub(crate) nkeys: u32,
}

static_assert!(size_of::<SetRdmaArgs>() == ARG_LEN);
static_assert!(offset_of!(SetRdmaArgs, rkey) == 36);
static_assert!(offset_of!(SetRdmaArgs, nkeys) == 100);

/// The record of SET_RDMA_REG_INFO, as GET_RDMA_REG_INFO and storage drivers see it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RdmaInfo {
    /// 0: not set.
    pub(crate) version: u8,
    /// Bit 0: `gid` is valid.
    pub(crate) flags: u8,
    pub(crate) lid: u16,
    pub(crate) qp_num: u32,
    /// GPU virtual address.
    pub(crate) rem_vaddr: u64,
    /// Bytes.
    pub(crate) size: u32,
    pub(crate) rkey: u32,
    pub(crate) gid: [u64; 2],
    pub(crate) dc_key: u32,
    /// Zero.
    pub(crate) padding: [u8; 4],
}

static_assert!(size_of::<RdmaInfo>() == 48);
static_assert!(offset_of!(RdmaInfo, gid) == 24);

impl RdmaInfo {
    /// Not set.
    pub(crate) const NONE: Self = Self {
        version: 0,
        flags: 0,
        lid: 0,
        qp_num: 0,
        rem_vaddr: 0,
        size: 0,
        rkey: 0,
        gid: [0; 2],
        dc_key: 0,
        padding: [0; 4],
    };

    /// The record's bytes for `len` bytes at GPU address `address`. `None` if it is not set.
    pub(crate) fn at(mut self, address: u64, len: u64) -> Option<[u8; size_of::<Self>()]> {
        if self.version == 0 {
            return None;
        }
        self.rem_vaddr = address;
        self.size = u32::try_from(len).ok()?;
        self.as_bytes().try_into().ok()
    }
}

/// Where the record is in the argument of GET_RDMA_REG_INFO.
pub(crate) const RDMA_INFO_OFFSET: usize = 16;

/// Reads an argument from the address that the user gave. Fails with `EFAULT`.
pub(crate) fn read<T: FromBytes + IntoBytes>(arg: usize) -> Result<T> {
    user::read(arg)
}

/// Stores a part of an argument, `offset` bytes from its start. Fails with `EFAULT`.
pub(crate) fn write<T: IntoBytes + Immutable>(arg: usize, offset: usize, value: &T) -> Result {
    user::write(arg.checked_add(offset).ok_or(EFAULT)?, value)
}

/// Stores `ioctl_return` of READ, WRITE or MAP. Fails with `EFAULT`.
pub(crate) fn write_return(arg: usize, value: i64) -> Result {
    write(arg, RETURN_OFFSET, &value)
}
