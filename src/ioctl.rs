// SPDX-License-Identifier: GPL-2.0

//! Requests by number, and how their results travel: contract section 3.

use crate::{
    abi,
    batch,
    buffer,
    driver::Driver,
    io,
    rdma, //
};
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};
use nvfs_kernel::kiocb::Direction;

/// Does one request. May sleep.
pub(crate) fn dispatch(driver: ArcBorrow<'_, Driver>, cmd: u32, arg: usize) -> Result<isize> {
    match cmd {
        abi::REMOVE => Ok(0),
        abi::READ => answer(arg, io::request(driver, abi::read(arg)?, Direction::Read)),
        abi::WRITE => answer(arg, io::request(driver, abi::read(arg)?, Direction::Write)),
        abi::MAP => {
            let args = abi::read(arg)?;
            match buffer::map(driver, &args) {
                Ok(()) => Ok(0),
                Err(e) => {
                    abi::write_return(arg, i64::from(e.to_errno()))?;
                    Err(EPERM)
                }
            }
        }
        abi::BATCH_IO => {
            let args = abi::read(arg)?;
            let submitted = batch::submit(driver, &args);
            abi::write(arg, 0, &args)
                .and(submitted)
                .map_err(|_| EPERM)?;
            Ok(0)
        }
        abi::SET_RDMA_REG_INFO => rdma::set(&abi::read(arg)?).map(|()| 0),
        abi::GET_RDMA_REG_INFO => {
            let info = rdma::get(abi::read(arg)?)?;
            abi::write(arg, abi::RDMA_INFO_OFFSET, &info)?;
            Ok(0)
        }
        abi::CLEAR_RDMA_REG_INFO => {
            let cpuvaddr = abi::read(arg)?;
            rdma::clear(cpuvaddr).map(|()| 0).map_err(|_| EPERM)
        }
        _ => {
            abi::read::<[u8; abi::ARG_LEN]>(arg)?;
            Err(ENOTTY)
        }
    }
}

/// Stores the result where the user looks for it. A failure is always `EPERM`, with the reason in
/// `ioctl_return`.
fn answer(arg: usize, result: Result<i64>) -> Result<isize> {
    let value = match result {
        Ok(value) => value,
        Err(e) => i64::from(e.to_errno()),
    };
    abi::write_return(arg, value).map_err(|_| EPERM)?;
    result.map(|_| 0).map_err(|_| EPERM)
}
