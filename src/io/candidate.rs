// SPDX-License-Identifier: GPL-2.0

//! An entry of BATCH_IO on its way to an [`Io`], in two steps: what others can hold up, and the rest.

use super::{
    check::{
        LookedUp,
        Request, //
    },
    Begin,
    Count,
    Io, //
};
use crate::{
    abi::IoArgs,
    driver::Driver, //
};
use kernel::prelude::*;
use nvfs_kernel::kiocb::Direction;

/// An entry of a batch, of which nothing is busy yet.
pub(crate) struct Candidate {
    args: IoArgs,
    direction: Direction,
    found: LookedUp,
}

impl Candidate {
    /// Looks up what an entry refers to. May sleep, as long as the process likes.
    pub(crate) fn find(driver: &Driver, args: IoArgs, begin: Begin) -> Result<Self> {
        let direction = match args.operation() {
            0 => Direction::Read,
            1 => Direction::Write,
            _ => return Err(EINVAL),
        };
        let found = LookedUp::find(&args, direction)
            .inspect_err(|_| Count::new(direction, None, begin).reject(driver))?;
        Ok(Self {
            args,
            direction,
            found,
        })
    }

    /// Takes its buffer; it counts as a read or write once it has passed. Does not sleep.
    pub(crate) fn take(self, driver: &Driver, begin: Begin) -> Result<Io> {
        let Self {
            args,
            direction,
            found,
        } = self;
        let request = Request::take(found, &args, direction)
            .inspect_err(|_| Count::new(direction, None, begin).reject(driver))?;
        Ok(Io::new(
            request,
            &args,
            Count::begin(driver, direction, &args, begin),
        ))
    }
}
