// SPDX-License-Identifier: GPL-2.0

//! Character devices: a dynamic major with a range of minors, a class, and a node for each minor.
//!
//! All nodes are equal and share one state. The table's owner is this module, so the module stays
//! while a node is open or mapped.
//!
//! C headers: `include/linux/cdev.h`, `include/linux/device/class.h`.

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    container_of,
    error::{
        from_err_ptr,
        to_result, //
    },
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// What the nodes do. All methods run in process context and may sleep.
pub trait Operations: Send + Sync + Sized + 'static {
    /// A node is opened, in any access mode.
    fn open(this: ArcBorrow<'_, Self>) -> Result;

    /// A file that [`open`](Self::open) accepted is closed for the last time.
    fn release(this: ArcBorrow<'_, Self>);

    /// An ioctl, also from a 32-bit process; `arg` is the untranslated argument.
    fn ioctl(this: ArcBorrow<'_, Self>, cmd: u32, arg: usize) -> Result<isize>;

    /// A mapping is made; `offset` is the file offset in pages.
    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew, offset: usize) -> Result;
}

/// The nodes. Dropping them removes them; as the module is pinned by every open file, no callback
/// runs any more by then.
pub struct Registration<T: Operations> {
    // In the order in which they must drop: first no node can be opened any more.
    _cdev: Pin<KBox<Cdev<T>>>,
    _nodes: Nodes,
    _class: Class,
    _region: Region,
}

impl<T: Operations> Registration<T> {
    /// Registers `count` minors under the name `name` in `/proc/devices`, makes the class `class`
    /// and the nodes, whose names are `node` and a number, with mode 0666.
    ///
    /// May sleep. Fails with the errno of the first step that failed; what was made is undone.
    ///
    /// From the moment when this succeeds nodes can be opened, also before the module's `init` has
    /// returned, which must not fail any more then: the open file's module would go. Until then
    /// opening them gives `ENXIO`.
    pub fn new(
        name: &'static CStr,
        class: &'static CStr,
        node: &'static CStr,
        count: u32,
        state: Arc<T>,
    ) -> Result<Self> {
        let region = Region::new(name, count)?;
        let class = Class::new(class)?;
        let nodes = Nodes::new(&class, &region, node)?;
        // Last, as nobody can take it back from who has opened a node.
        let cdev = Cdev::new(&region, state)?;
        Ok(Self {
            _cdev: cdev,
            _nodes: nodes,
            _class: class,
            _region: region,
        })
    }
}

/// A range of device numbers.
///
/// # Invariants
///
/// `first` and the `count - 1` numbers after it are allocated to us.
struct Region {
    first: bindings::dev_t,
    count: u32,
}

impl Region {
    fn new(name: &'static CStr, count: u32) -> Result<Self> {
        let mut first = 0;
        // SAFETY: `first` is valid for writing; `name` is a C string that lives for ever.
        to_result(unsafe {
            bindings::alloc_chrdev_region(&mut first, 0, count, name.as_char_ptr())
        })?;
        // INVARIANT: Just allocated.
        Ok(Self { first, count })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::unregister_chrdev_region(self.first, self.count) }
    }
}

/// A device class whose nodes everybody may open.
///
/// # Invariants
///
/// The pointer was made by `class_create` and is not yet destroyed.
struct Class(NonNull<bindings::class>);

// SAFETY: A class has its own locks.
unsafe impl Send for Class {}
// SAFETY: As above.
unsafe impl Sync for Class {}

impl Class {
    fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` is a C string that lives for ever.
        let class = from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?;
        let class = NonNull::new(class).ok_or(ENOMEM)?;
        // SAFETY: The class was just made and has no device yet, so nobody reads the field.
        unsafe { (*class.as_ptr()).devnode = Some(devnode) };
        // INVARIANT: Just made.
        Ok(Self(class))
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::class_destroy(self.0.as_ptr()) }
    }
}

/// # Safety
///
/// Only for the driver core, which passes NULL or a valid pointer as `mode`.
unsafe extern "C" fn devnode(
    _dev: *const bindings::device,
    mode: *mut bindings::umode_t,
) -> *mut c_char {
    if let Some(mode) = NonNull::new(mode) {
        // SAFETY: By the safety requirements.
        unsafe { mode.write(0o666) };
    }
    null_mut()
}

/// The `struct cdev` and what its files share.
///
/// # Invariants
///
/// `cdev` is added; it is the one that the files' inodes point to.
#[pin_data(PinnedDrop)]
struct Cdev<T: Operations> {
    #[pin]
    cdev: Opaque<bindings::cdev>,
    state: Arc<T>,
}

// SAFETY: `cdev` is only touched by the kernel's own, locked code.
unsafe impl<T: Operations> Send for Cdev<T> {}
// SAFETY: As above.
unsafe impl<T: Operations> Sync for Cdev<T> {}

impl<T: Operations> Cdev<T> {
    fn new(region: &Region, state: Arc<T>) -> Result<Pin<KBox<Self>>> {
        // INVARIANT: The initializer of `cdev` has added it.
        KBox::try_pin_init(
            try_pin_init!(Self {
                state,
                cdev <- Opaque::try_ffi_init(|cdev| {
                    // SAFETY: `cdev` is memory for a `struct cdev`, pinned in its box.
                    unsafe { bindings::cdev_init(cdev, Table::<T>::FOPS) };
                    // SAFETY: Just initialized.
                    unsafe { (*cdev).owner = &raw mut bindings::__this_module };
                    // SAFETY: Just initialized; the numbers are ours. An inode finds the state
                    // by the box that is around `cdev`, of which `state` is set already.
                    to_result(unsafe { bindings::cdev_add(cdev, region.first, region.count) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl<T: Operations> PinnedDrop for Cdev<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::cdev_del(self.cdev.get()) }
    }
}

/// The device nodes made so far.
///
/// # Invariants
///
/// The devices `first` .. `first + count` exist in the class at `class`, which outlives them.
struct Nodes {
    class: NonNull<bindings::class>,
    first: bindings::dev_t,
    count: u32,
}

// SAFETY: The driver core has its own locks.
unsafe impl Send for Nodes {}
// SAFETY: As above.
unsafe impl Sync for Nodes {}

impl Nodes {
    fn new(class: &Class, region: &Region, name: &'static CStr) -> Result<Self> {
        // INVARIANT: No device yet; `Registration` drops the nodes before the class.
        let mut nodes = Self {
            class: class.0,
            first: region.first,
            count: 0,
        };
        while nodes.count < region.count {
            let number = nodes.count;
            // SAFETY: The class is live; the number is in our region; the format takes a C string
            // and an unsigned integer.
            from_err_ptr(unsafe {
                bindings::device_create(
                    nodes.class.as_ptr(),
                    null_mut(),
                    nodes.first + number,
                    null_mut(),
                    c"%s%u".as_char_ptr(),
                    name.as_char_ptr(),
                    number,
                )
            })?;
            // INVARIANT: One more was made.
            nodes.count += 1;
        }
        Ok(nodes)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for number in 0..self.count {
            // SAFETY: By the type invariant.
            unsafe { bindings::device_destroy(self.class.as_ptr(), self.first + number) }
        }
    }
}

#[repr(transparent)]
struct Table<T>(PhantomData<T>);

impl<T: Operations> Table<T> {
    const FOPS: &'static bindings::file_operations = &bindings::file_operations {
        owner: &raw mut bindings::__this_module,
        open: Some(open::<T>),
        release: Some(release::<T>),
        unlocked_ioctl: Some(ioctl::<T>),
        compat_ioctl: Some(ioctl::<T>),
        mmap: Some(mmap::<T>),
        // SAFETY: A table without callbacks is all zeroes.
        ..unsafe { core::mem::zeroed() }
    };
}

/// # Safety
///
/// Only for the VFS, on the nodes of a [`Registration<T>`].
unsafe extern "C" fn open<T: Operations>(
    inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `chrdev_open` has set `i_cdev` to our cdev and holds a reference on this module.
    let cdev = unsafe { bindings::nvfs_helper_i_cdev(inode) };
    // SAFETY: That cdev is the field of a `Cdev<T>`, live while it is added.
    let node = unsafe { &*container_of!(Opaque::cast_from(cdev), Cdev<T>, cdev) };
    if let Err(e) = T::open(node.state.as_arc_borrow()) {
        return e.to_errno();
    }
    // SAFETY: The file is being opened, so the field is ours.
    unsafe { (*file).private_data = node.state.clone().into_foreign() };
    0
}

/// # Safety
///
/// Only for the VFS, on a file that [`open`] accepted.
unsafe extern "C" fn release<T: Operations>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `open` has put it there, and nobody uses the file any more.
    let state = unsafe { Arc::<T>::from_foreign((*file).private_data) };
    T::release(state.as_arc_borrow());
    0
}

/// # Safety
///
/// Only for the VFS, on a file that [`open`] accepted.
unsafe extern "C" fn ioctl<T: Operations>(
    file: *mut bindings::file,
    cmd: c_uint,
    arg: c_ulong,
) -> c_long {
    // SAFETY: `open` has put it there; the file is open for the time of the call.
    let state = unsafe { Arc::<T>::borrow((*file).private_data) };
    match T::ioctl(state, cmd, arg) {
        Ok(value) => value,
        // CAST: An errno fits any integer type.
        Err(e) => e.to_errno() as c_long,
    }
}

/// # Safety
///
/// Only for the VFS, on a file that [`open`] accepted and with the VMA that is being made.
unsafe extern "C" fn mmap<T: Operations>(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: `open` has put it there; the file is open for the time of the call.
    let state = unsafe { Arc::<T>::borrow((*file).private_data) };
    // SAFETY: The VMA is ours for the time of the call.
    let offset = unsafe { (*vma).vm_pgoff };
    // SAFETY: The VMA is being made by `mmap`, with the flags not yet in use.
    match T::mmap(state, unsafe { VmaNew::from_raw(vma) }, offset) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}
