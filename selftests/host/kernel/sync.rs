// SPDX-License-Identifier: GPL-2.0

use crate::{
    error::Result,
    init::PinInit,
    prelude::Flags, //
};
use core::{convert::Infallible, ops::Deref};
use loom::sync::atomic::{fence, Ordering};

pub mod atomic {
    use loom::sync::atomic::Ordering;

    /// A type that stands for an ordering of the kernel.
    pub trait Order {
        const LOAD: Ordering;
        const STORE: Ordering;
        const CHANGE: Ordering;
    }

    macro_rules! orders {
        ($($name:ident $load:ident $store:ident $change:ident;)*) => { $(
            pub struct $name;
            impl Order for $name {
                const LOAD: Ordering = Ordering::$load;
                const STORE: Ordering = Ordering::$store;
                const CHANGE: Ordering = Ordering::$change;
            }
        )* };
    }

    orders! {
        Relaxed Relaxed Relaxed Relaxed;
        Acquire Acquire Relaxed Acquire;
        Release Relaxed Release Release;
        Full SeqCst SeqCst SeqCst;
    }

    /// An integer with an atomic of the checker's.
    pub trait Value: Copy {
        type Loom;
        fn new(value: Self) -> Self::Loom;
        fn load(loom: &Self::Loom, order: Ordering) -> Self;
        fn store(loom: &Self::Loom, value: Self, order: Ordering);
        fn swap(loom: &Self::Loom, value: Self, order: Ordering) -> Self;
        fn change(loom: &Self::Loom, old: Self, new: Self, order: Ordering) -> Result<Self, Self>;
    }

    macro_rules! values {
        ($($t:ty, $loom:ident;)*) => { $(
            impl Value for $t {
                type Loom = loom::sync::atomic::$loom;

                fn new(value: Self) -> Self::Loom {
                    Self::Loom::new(value)
                }

                fn load(loom: &Self::Loom, order: Ordering) -> Self {
                    loom.load(order)
                }

                fn store(loom: &Self::Loom, value: Self, order: Ordering) {
                    loom.store(value, order)
                }

                fn swap(loom: &Self::Loom, value: Self, order: Ordering) -> Self {
                    loom.swap(value, order)
                }

                fn change(
                    loom: &Self::Loom, old: Self, new: Self, order: Ordering,
                ) -> Result<Self, Self> {
                    loom.compare_exchange(old, new, order, Ordering::Relaxed)
                }
            }
        )* };
    }

    values! {
        u32, AtomicU32;
        i32, AtomicI32;
        u64, AtomicU64;
        i64, AtomicI64;
    }

    pub struct Atomic<T: Value>(pub(super) T::Loom);

    impl<T: Value> Atomic<T> {
        pub fn new(value: T) -> Self {
            Self(T::new(value))
        }

        pub fn load<O: Order>(&self, _order: O) -> T {
            T::load(&self.0, O::LOAD)
        }

        pub fn store<O: Order>(&self, value: T, _order: O) {
            T::store(&self.0, value, O::STORE)
        }

        pub fn xchg<O: Order>(&self, value: T, _order: O) -> T {
            T::swap(&self.0, value, O::CHANGE)
        }

        pub fn cmpxchg<O: Order>(&self, old: T, new: T, _order: O) -> Result<T, T> {
            T::change(&self.0, old, new, O::CHANGE)
        }
    }
}

/// As `refcount_t`: taking one orders nothing, giving one back releases, the last one acquires.
pub struct Refcount(atomic::Atomic<i32>);

impl Refcount {
    pub fn new(value: i32) -> Self {
        Self(atomic::Atomic::new(value))
    }

    pub fn inc(&self) {
        let old = self.0 .0.fetch_add(1, Ordering::Relaxed);
        assert!(old > 0, "refcount: increment of {old}");
    }

    #[must_use]
    pub fn dec_and_test(&self) -> bool {
        let old = self.0 .0.fetch_sub(1, Ordering::Release);
        assert!(old > 0, "refcount: decrement of {old}");
        if old == 1 {
            fence(Ordering::Acquire);
        }
        old == 1
    }

    pub fn as_atomic(&self) -> &atomic::Atomic<i32> {
        &self.0
    }
}

pub mod aref {
    use core::{marker::PhantomData, mem::ManuallyDrop, ops::Deref, ptr::NonNull};

    /// # Safety
    ///
    /// As in the kernel.
    pub unsafe trait AlwaysRefCounted {
        fn inc_ref(&self);

        /// # Safety
        ///
        /// As in the kernel.
        unsafe fn dec_ref(this: NonNull<Self>);
    }

    pub struct ARef<T: AlwaysRefCounted>(NonNull<T>, PhantomData<T>);

    // SAFETY: As in the kernel.
    unsafe impl<T: AlwaysRefCounted + Sync + Send> Send for ARef<T> {}
    // SAFETY: As in the kernel.
    unsafe impl<T: AlwaysRefCounted + Sync + Send> Sync for ARef<T> {}

    impl<T: AlwaysRefCounted> ARef<T> {
        /// # Safety
        ///
        /// A reference is the caller's to give.
        pub unsafe fn from_raw(this: NonNull<T>) -> Self {
            Self(this, PhantomData)
        }

        pub fn into_raw(this: Self) -> NonNull<T> {
            ManuallyDrop::new(this).0
        }
    }

    impl<T: AlwaysRefCounted> Clone for ARef<T> {
        fn clone(&self) -> Self {
            self.inc_ref();
            Self(self.0, PhantomData)
        }
    }

    impl<T: AlwaysRefCounted> Deref for ARef<T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: The reference keeps it.
            unsafe { self.0.as_ref() }
        }
    }

    impl<T: AlwaysRefCounted> Drop for ARef<T> {
        fn drop(&mut self) {
            // SAFETY: The reference is given up.
            unsafe { T::dec_ref(self.0) }
        }
    }
}

pub struct Arc<T: ?Sized>(loom::sync::Arc<T>);

impl<T> Arc<T> {
    pub fn new(value: T, _flags: Flags) -> Result<Self> {
        Ok(Self(loom::sync::Arc::new(value)))
    }

    pub fn pin_init<E>(init: impl PinInit<T, E>, _flags: Flags) -> Result<Self>
    where
        crate::error::Error: From<E>,
    {
        Ok(Self(loom::sync::Arc::new(init.make()?)))
    }
}

impl<T: ?Sized> Arc<T> {
    /// As the checker's cannot become one of a trait object by itself.
    pub fn from_std(value: std::sync::Arc<T>) -> Self {
        Self(loom::sync::Arc::from_std(value))
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn make(value: T) -> impl PinInit<Self, Infallible> {
        crate::init::init(|| Ok(Self(loom::sync::Mutex::new(value))))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

#[macro_export]
macro_rules! new_mutex {
    ($value:expr) => {
        $crate::sync::Mutex::make($value)
    };
}

pub use new_mutex;

/// A lock of a `global_lock!`.
pub struct Global<T>(loom::sync::Mutex<T>);

impl<T> Global<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// # Safety
    ///
    /// As in the kernel; here it is made by its first use.
    pub unsafe fn init(&self) {}

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

#[macro_export]
macro_rules! global_lock {
    (unsafe(uninit) static $name:ident: SpinLock<$t:ty> = $value:expr;) => {
        loom::lazy_static! {
            static ref $name: $crate::sync::Global<$t> = $crate::sync::Global::new($value);
        }
    };
}

pub use global_lock;
