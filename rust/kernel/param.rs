// SPDX-License-Identifier: GPL-2.0

//! Module parameters that stay readable and writable in sysfs, and other `.modinfo` entries.
//!
//! C header: `include/linux/moduleparam.h`.

use crate::bindings;
use kernel::{
    prelude::*,
    str::CStr,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// A parameter of type `uint`.
#[repr(transparent)]
pub struct Uint(Atomic<u32>);

impl Uint {
    /// For the `static` that [`uint_param!`](crate::uint_param) makes.
    #[doc(hidden)]
    pub const fn new(default: u32) -> Self {
        Self(Atomic::new(default))
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Changes the value, as a write in sysfs would.
    pub fn set(&self, value: u32) {
        self.0.store(value, Relaxed)
    }
}

/// No word of a [`Choice`] has so many bytes. The kernel lends a page to show it in.
const MAX_WORD: usize = 64;

/// A parameter that is one of a few words.
///
/// # Invariants
///
/// Each of `words` has less than `MAX_WORD` bytes.
pub struct Choice {
    value: Atomic<u32>,
    words: &'static [&'static CStr],
}

impl Choice {
    /// For the `static` that [`choice_param!`](crate::choice_param) makes.
    #[doc(hidden)]
    pub const fn new(words: &'static [&'static CStr]) -> Self {
        let mut rest = words;
        while let [word, more @ ..] = rest {
            // Evaluated when it is compiled.
            assert!(word.count_bytes() < MAX_WORD);
            rest = more;
        }
        // INVARIANT: Each was looked at.
        Self {
            value: Atomic::new(0),
            words,
        }
    }

    /// The index of the word that is chosen now.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }
}

/// What the kernel does with a write to and a read of a [`Choice`].
#[doc(hidden)]
pub static CHOICE_OPS: Ops = Ops(bindings::kernel_param_ops {
    flags: 0,
    set: Some(set_choice),
    get: Some(get_choice),
    free: None,
});

/// A table of parameter operations.
#[doc(hidden)]
#[repr(transparent)]
pub struct Ops(bindings::kernel_param_ops);

// SAFETY: Never written.
unsafe impl Sync for Ops {}

/// # Safety
///
/// Only for the kernel's parameter code, on a parameter made by `choice_param!`.
unsafe extern "C" fn set_choice(
    text: *const c_char,
    param: *const bindings::kernel_param,
) -> c_int {
    // SAFETY: By the safety requirements the argument is a `Choice`, in a `static`.
    let choice = unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Choice>() };
    for (index, word) in (0u32..).zip(choice.words) {
        // SAFETY: Both are C strings.
        if unsafe { bindings::sysfs_streq(text, word.as_char_ptr()) } {
            choice.value.store(index, Relaxed);
            return 0;
        }
    }
    EINVAL.to_errno()
}

/// # Safety
///
/// Only for the kernel's parameter code, on a parameter made by `choice_param!`, with a buffer of
/// a page.
unsafe extern "C" fn get_choice(
    buffer: *mut c_char,
    param: *const bindings::kernel_param,
) -> c_int {
    // SAFETY: By the safety requirements the argument is a `Choice`, in a `static`.
    let choice = unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Choice>() };
    let word = usize::try_from(choice.get())
        .ok()
        .and_then(|index| choice.words.get(index));
    let Some(word) = word else {
        return EINVAL.to_errno();
    };
    let bytes = word.to_bytes();
    // SAFETY: By the type invariant it is short, and the buffer has a page.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
    // SAFETY: As above.
    unsafe { *buffer.add(bytes.len()) = b'\n' };
    // CAST: The words are short.
    (bytes.len() + 1) as c_int
}

/// An entry of the section `__param`.
#[doc(hidden)]
#[repr(transparent)]
pub struct Entry(bindings::kernel_param);

// SAFETY: Only the kernel's parameter code touches it, under its own lock.
unsafe impl Sync for Entry {}

impl Entry {
    /// For [`uint_param!`](crate::uint_param).
    pub const fn uint(name: &'static CStr, value: &'static Uint) -> Self {
        let ops = &raw const bindings::param_ops_uint;
        Self::new(name, ops, core::ptr::from_ref(value).cast())
    }

    /// For [`choice_param!`](crate::choice_param).
    pub const fn choice(name: &'static CStr, value: &'static Choice) -> Self {
        Self::new(name, &CHOICE_OPS.0, core::ptr::from_ref(value).cast())
    }

    const fn new(
        name: &'static CStr,
        ops: *const bindings::kernel_param_ops,
        arg: *const c_void,
    ) -> Self {
        Self(bindings::kernel_param {
            name: kernel::str::as_char_ptr_in_const_context(name),
            mod_: &raw mut bindings::__this_module,
            ops,
            perm: 0o644,
            level: -1,
            flags: 0,
            __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 {
                arg: arg.cast_mut(),
            },
        })
    }
}

/// The bytes of a string as an array, for a `.modinfo` entry.
#[doc(hidden)]
pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let text = text.as_bytes();
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        bytes[i] = text[i];
        i += 1;
    }
    bytes
}

/// Puts `key=value` into the module's `.modinfo`.
#[macro_export]
macro_rules! modinfo {
    ($($text:expr),*) => {
        const _: () = {
            const TEXT: &str = concat!($($text,)* "\0");
            #[link_section = ".modinfo"]
            #[used]
            static INFO: [u8; TEXT.len()] = $crate::param::bytes(TEXT);
        };
    };
}

/// Makes a `static` [`Uint`] that is a module parameter with mode 0644.
#[macro_export]
macro_rules! uint_param {
    ($vis:vis $static:ident, $name:literal, $default:expr, $text:literal) => {
        #[doc = $text]
        $vis static $static: $crate::param::Uint = $crate::param::Uint::new($default);
        $crate::param_entry!($static, uint, "uint", $name, $text);
    };
}

/// Makes a `static` [`Choice`] that is a module parameter with mode 0644; the first word is the
/// default.
#[macro_export]
macro_rules! choice_param {
    ($vis:vis $static:ident, $name:literal, [$($word:literal),*], $text:literal) => {
        #[doc = $text]
        $vis static $static: $crate::param::Choice = $crate::param::Choice::new(&[$($word),*]);
        $crate::param_entry!($static, choice, "charp", $name, $text);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! param_entry {
    ($static:ident, $kind:ident, $type:literal, $name:literal, $text:literal) => {
        const _: () = {
            const NAME: &str = concat!($name, "\0");
            const C_NAME: &kernel::prelude::CStr =
                match kernel::prelude::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("parameter name with a NUL"),
                };
            #[link_section = "__param"]
            #[used]
            static ENTRY: $crate::param::Entry = $crate::param::Entry::$kind(C_NAME, &$static);
        };
        $crate::modinfo!("parmtype=", $name, ":", $type);
        $crate::modinfo!("parm=", $name, ":", $text);
    };
}
