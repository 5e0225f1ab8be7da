// SPDX-License-Identifier: GPL-2.0

//! What a process says about RDMA to a buffer, for storage drivers that reach GPU memory over a
//! network. Contract section 13.

use crate::{
    abi::{
        RdmaInfo,
        SetRdmaArgs, //
    },
    buffer, //
};
use kernel::{
    prelude::*,
    sync::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
};

/// The oldest version of what a process says.
const MIN_VERSION: u8 = 2;

/// The record of a buffer: always seen whole. It ends with the buffer.
#[pin_data]
pub(crate) struct Record {
    #[pin]
    info: SpinLockIrq<RdmaInfo>,
}

impl Record {
    /// Not set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            info <- new_spinlock_irq!(RdmaInfo::NONE),
        })
    }

    /// What was said last; its version is 0 if nothing was. Callable in any context but an NMI.
    pub(crate) fn get(&self) -> RdmaInfo {
        *self.info.lock()
    }

    /// Callable in any context but an NMI.
    fn set(&self, info: RdmaInfo) {
        *self.info.lock() = info;
    }
}

/// SET_RDMA_REG_INFO. May sleep. Fails with `EINVAL`; the record is then not set any more, if
/// there is a buffer.
pub(crate) fn set(args: &SetRdmaArgs) -> Result {
    let buffer = buffer::mapped(args.cpuvaddr)?;
    if args.nkeys != 1 || args.version < MIN_VERSION {
        buffer.rdma.set(RdmaInfo::NONE);
        return Err(EINVAL);
    }
    let range = &buffer.binding()?.range;
    let [rkey, ..] = args.rkey;
    buffer.rdma.set(RdmaInfo {
        version: args.version,
        flags: args.flags,
        lid: args.lid,
        qp_num: args.qp_num,
        rem_vaddr: range.va(),
        size: u32::try_from(range.size()).unwrap_or(u32::MAX),
        rkey,
        gid: args.gid,
        dc_key: args.dc_key,
        ..RdmaInfo::NONE
    });
    Ok(())
}

/// GET_RDMA_REG_INFO. May sleep. Fails with `EINVAL`.
pub(crate) fn get(cpuvaddr: u64) -> Result<RdmaInfo> {
    Ok(buffer::mapped(cpuvaddr)?.rdma.get())
}

/// CLEAR_RDMA_REG_INFO. May sleep. Fails with `EINVAL`.
pub(crate) fn clear(cpuvaddr: u64) -> Result {
    buffer::mapped(cpuvaddr)?.rdma.set(RdmaInfo::NONE);
    Ok(())
}
