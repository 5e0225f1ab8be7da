// SPDX-License-Identifier: GPL-2.0

use core::convert::Infallible;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(i32);

impl Error {
    pub fn from_errno(errno: i32) -> Self {
        Self(errno)
    }

    pub fn to_errno(self) -> i32 {
        self.0
    }
}

impl From<Infallible> for Error {
    fn from(e: Infallible) -> Self {
        match e {}
    }
}

pub type Result<T = (), E = Error> = core::result::Result<T, E>;

pub const EINTR: Error = Error(-4);
pub const EIO: Error = Error(-5);
pub const ENOMEM: Error = Error(-12);
pub const ENODEV: Error = Error(-19);
pub const EFAULT: Error = Error(-14);
pub const EBUSY: Error = Error(-16);
pub const EINVAL: Error = Error(-22);
pub const EOVERFLOW: Error = Error(-75);

pub fn to_result(errno: i32) -> Result {
    match errno {
        0.. => Ok(()),
        _ => Err(Error(errno)),
    }
}
