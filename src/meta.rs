// SPDX-License-Identifier: GPL-2.0

//! The meta block: the 4096 bytes of user memory through which the process learns of the end of
//! an asynchronous transfer, and of the end of its GPU memory. Contract section 8.

use kernel::prelude::*;
use nvfs_kernel::pin::{
    publish,
    PinnedUser, //
};

const FENCE: usize = 0;
const RESULT: usize = 8;
const STATE: usize = 16;

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
        Ok(Self(PinnedUser::new(address)?))
    }

    /// Tells the end of an asynchronous transfer: first the result, then the fence value, with
    /// all that the transfer wrote before both. Callable in any context.
    pub(crate) fn finish(&self, result: i64, fence: u64) {
        self.0.store(RESULT, result);
        publish();
        self.0.store(FENCE, fence);
    }

    /// Tells that the GPU memory is gone. Callable in any context.
    pub(crate) fn died(&self) {
        publish();
        self.0.store(STATE, DIED);
    }
}
