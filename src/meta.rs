// SPDX-License-Identifier: GPL-2.0

//! The meta block: the 4096 bytes of user memory through which the process learns of the end of
//! an asynchronous transfer, and of the end of its GPU memory. Contract section 8.

use crate::holes::Region;
use kernel::prelude::*;
use nvfs_kernel::{
    fault::{
        self,
        Point, //
    },
    pin::{
        publish,
        PinnedUser, //
    },
};

const FENCE: usize = 0;
const RESULT: usize = 8;
const STATE: usize = 16;
const MAGIC: usize = 24;
const TABLE_VERSION: usize = 32;
const COUNT: usize = 36;
const START: usize = 40;
const HOLES: usize = 48;

const START_MAGIC: u64 = 0xabc0_cba1_abc2_cba3;

/// `state` after a read without and with holes.
const CLEAN: u32 = 0;
const SPARSE: u32 = 1;

/// `state` when the GPU memory is gone.
const DIED: u32 = 2;

/// A pinned meta block. The process may write to it too, and can hurt only itself.
pub(crate) struct Meta(PinnedUser<4096>);

impl Meta {
    /// Pins the block at a user address. May sleep.
    ///
    /// Errors: `EINVAL` for 0 or an address that is not a multiple of 4096, `EFAULT` for memory
    /// that is not there or not writable.
    pub(crate) fn new(address: u64) -> Result<Self> {
        let address = usize::try_from(address).map_err(|_| EINVAL)?;
        if address == 0 {
            return Err(EINVAL);
        }
        if fault::fires(Point::PinFence) {
            return Err(EFAULT);
        }
        Ok(Self(PinnedUser::new(address)?))
    }

    /// Tells the end of an asynchronous transfer: first the result, then the fence value, with
    /// all that the transfer wrote before both. Callable in any context.
    pub(crate) fn finish(&self, result: i64, fence: u64) {
        self.0.store(RESULT, result);
        publish();
        self.0.store(FENCE, fence);
    }

    /// Stores the hole with that number, below [`MAX_REGIONS`](crate::holes::MAX_REGIONS).
    pub(crate) fn hole(&self, number: usize, region: Region) {
        let entry = u32::from(region.start) | u32::from(region.blocks) << 16;
        self.0.store(HOLES + number * size_of::<u32>(), entry);
    }

    /// Tells that the chunk read from file offset `pos` on has the first `count` holes that were
    /// stored. Callable in any context.
    pub(crate) fn holes(&self, count: usize, pos: i64) {
        self.0.store(MAGIC, START_MAGIC);
        self.0.store(TABLE_VERSION, 1u32);
        // At most `MAX_REGIONS`.
        self.0.store(COUNT, count as u32);
        self.0.store(START, pos);
        publish();
        self.0.store(STATE, if count > 0 { SPARSE } else { CLEAN });
    }

    /// Tells that the GPU memory is gone. Callable in any context.
    pub(crate) fn died(&self) {
        publish();
        self.0.store(STATE, DIED);
    }
}
