// SPDX-License-Identifier: GPL-2.0

//! Initializers. Here nothing minds being moved before it is in its place, so one is a closure.

use crate::{prelude::Flags, types::Opaque};
use core::{convert::Infallible, pin::Pin};

pub trait PinInit<T, E = Infallible>: Sized {
    fn make(self) -> Result<T, E>;
}

/// What `pin_init!` and `try_pin_init!` make.
pub struct Init<F>(F);

impl<T, E, F: FnOnce() -> Result<T, E>> PinInit<T, E> for Init<F> {
    fn make(self) -> Result<T, E> {
        (self.0)()
    }
}

impl<T> PinInit<Opaque<T>> for Opaque<T> {
    fn make(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

/// An initializer that is a closure.
pub fn init<T, E, F: FnOnce() -> Result<T, E>>(make: F) -> Init<F> {
    Init(make)
}

#[macro_export]
macro_rules! pin_init {
    ($t:ident { $($fields:tt)* }) => {
        $crate::init::init(move || -> ::core::result::Result<_, ::core::convert::Infallible> {
            Ok($crate::init_fields!($t [] $($fields)*))
        })
    };
}

#[macro_export]
macro_rules! try_pin_init {
    ($t:ident { $($fields:tt)* }? $e:ty) => {
        $crate::init::init(move || -> ::core::result::Result<_, $e> {
            Ok($crate::init_fields!($t [] $($fields)*))
        })
    };
}

#[macro_export]
macro_rules! init_fields {
    ($t:ident [$($done:tt)*]) => { $t { $($done)* } };
    ($t:ident [$($done:tt)*] $field:ident : $value:expr, $($rest:tt)*) => {
        $crate::init_fields!($t [$($done)* $field: $value,] $($rest)*)
    };
    ($t:ident [$($done:tt)*] $field:ident <- $value:expr, $($rest:tt)*) => {
        $crate::init_fields!($t [$($done)* $field: $crate::init::PinInit::make($value)?,] $($rest)*)
    };
    ($t:ident [$($done:tt)*] $field:ident , $($rest:tt)*) => {
        $crate::init_fields!($t [$($done)* $field,] $($rest)*)
    };
}

pub trait InPlaceInit<T>: Sized {
    fn try_pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Pin<Self>, E>;
}

impl<T> InPlaceInit<T> for Box<T> {
    fn try_pin_init<E>(init: impl PinInit<T, E>, _flags: Flags) -> Result<Pin<Self>, E> {
        Ok(Box::pin(init.make()?))
    }
}
