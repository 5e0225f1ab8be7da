// SPDX-License-Identifier: GPL-2.0

//! What READ and WRITE check before they touch anything, in the order of contract section 9.1.

use crate::{
    abi::IoArgs,
    buffer::{
        self,
        BufferRef,
        Busy, //
    },
    geometry::FileRange, //
};
use kernel::prelude::*;
use nvfs_kernel::{
    file::IoFile,
    kiocb::Direction, //
};

/// What a request refers to. Nothing is busy yet, so whatever its process or the servers of its files
/// can hold up has been before: freeing GPU memory waits for busy buffers.
pub(super) struct LookedUp {
    range: FileRange,
    file: IoFile,
    buffer: BufferRef,
}

impl LookedUp {
    /// Rows 1 to 11. May sleep, as long as the process likes.
    #[inline(always)]
    pub(super) fn find(args: &IoArgs, direction: Direction) -> Result<Self> {
        let range = FileRange::new(args.offset, args.size).ok_or(EINVAL)?;
        let file = IoFile::get(args.fd).ok_or(EINVAL)?;
        check_access(&file, direction, args.allow_reads())?;
        check_identity(&file, args)?;
        let buffer = buffer::at(args.cpuvaddr)?;
        Ok(Self {
            range,
            file,
            buffer,
        })
    }
}

/// A request that passed: what it refers to is held.
pub(super) struct Request {
    pub(super) direction: Direction,
    pub(super) range: FileRange,
    pub(super) file: IoFile,
    /// Where it begins, in bytes from the start of the pinned GPU memory.
    pub(super) gpu_offset: u64,
    pub(super) busy: Busy,
    /// Where its shadow memory is in the process.
    pub(super) cpuvaddr: u64,
    /// Each part stays inside a piece of GPU memory as long as the shadow memory.
    pub(super) segmented: bool,
}

impl Request {
    /// All that is checked. May sleep. The buffer is busy from here on, until the request is dropped.
    #[inline(always)] // Its result is large.
    pub(super) fn check(args: &IoArgs, direction: Direction) -> Result<Self> {
        Self::take(LookedUp::find(args, direction)?, args, direction)
    }

    /// The rest of the checks, which do not sleep. As [`check`](Self::check).
    #[inline(always)]
    pub(super) fn take(found: LookedUp, args: &IoArgs, direction: Direction) -> Result<Self> {
        let LookedUp {
            range,
            file,
            buffer,
        } = found;
        let busy = Busy::take(buffer)?;
        if !file.is_direct() {
            return Err(EINVAL);
        }
        if !args.is_sync() && args.end_fence_value == 0 {
            return Err(EINVAL);
        }
        let gpu_offset = busy
            .buffer()
            .binding()?
            .range
            .locate(args.device_offset(), range.size())
            .ok_or(EINVAL)?;
        if !file.has_iterators() {
            return Err(EINVAL);
        }
        Ok(Self {
            direction,
            range,
            file,
            gpu_offset,
            busy,
            cpuvaddr: args.cpuvaddr,
            segmented: args.use_rkeys(),
        })
    }
}

/// Contract section 9.2. A descriptor for writing only must not read for a process what that may
/// not read.
fn check_access(file: &IoFile, direction: Direction, allow_reads: bool) -> Result {
    let access = file.access();
    let (allowed, able) = match direction {
        Direction::Write => (access.write, access.can_write),
        Direction::Read if access.read => (true, access.can_read),
        Direction::Read => (
            allow_reads && access.write && file.may_be_read(),
            access.can_write,
        ),
    };
    if !allowed {
        Err(EBADF)
    } else if !able {
        Err(EINVAL)
    } else {
        Ok(())
    }
}

/// The file is the one that the user means: rows 6 to 10, and contract section 9.3.
fn check_identity(file: &IoFile, args: &IoArgs) -> Result {
    if args.inum == 0 || (file.is_block_device() && args.majdev == 0) {
        return Err(EINVAL);
    }
    let same = (args.generation == 0 || args.generation == file.generation())
        && args.inum == file.inode_number()
        && (args.majdev, args.mindev) == file.device_numbers();
    if same {
        Ok(())
    } else {
        Err(ESTALE)
    }
}
