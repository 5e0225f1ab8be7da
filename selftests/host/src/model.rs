// SPDX-License-Identifier: GPL-2.0

//! A buffer in the hands of several threads: submission, completion, munmap, the GPU driver's free
//! callback, the storage driver's segments and the end of the module, in all orders of their steps
//! and with all that weak memory allows.
//!
//! The code under test is `life.rs`, `state.rs`, `wait.rs`, `meta.rs`, `window.rs`, `kiocb.rs`,
//! `reaper.rs` and `gpu/callbacks.rs`. Who calls it here does so in the order in which `buffer.rs`,
//! `io.rs`, `gpu.rs` and `dma_ops.rs` do.
//!
//! Most tests try all orders. Those with more threads than can be tried so in seconds try all that
//! force a switch of threads at most so often; a switch where a thread waits or ends is not forced.

use crate::{
    geometry::{Chunk, BLOCK},
    life::{Attempt, Life},
    meta::Meta,
    state::{Refused, Word},
    wait::{Found, Waiter},
    window::Window,
};
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc},
};
use loom::{cell::UnsafeCell, model::Builder, thread};
use nvfs_kernel::{
    context::{interrupt, kill, unload},
    file::IoFile,
    gpu::{self, PinnedGpu},
    kiocb::{submit, Completed, Direction, Outcome, Segment, Slot, Submitted},
    p2pdma::Memory,
    pin::UserPage,
    reaper::{Deferred, Handle, Reaped, Reaper},
    shadow::Mark,
};

/// How many forced switches of threads a model has at most.
enum Switches {
    Any,
    AtMost(usize),
}

use Switches::{Any, AtMost};

/// Runs `check` in all orders.
fn model(switches: Switches, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = match switches {
        Any => None,
        AtMost(bound) => Some(bound),
    };
    builder.max_branches = 10_000;
    builder.check(check);
}

/// Something that goes. The checker finds a use that is not ordered before its end.
struct Mortal(UnsafeCell<bool>);

// SAFETY: The checker's cell finds out itself who meets whom.
unsafe impl Send for Mortal {}
// SAFETY: As above.
unsafe impl Sync for Mortal {}

impl Mortal {
    fn new() -> Self {
        Self(UnsafeCell::new(true))
    }

    /// It is used, maybe by others too.
    fn touch(&self) {
        // SAFETY: The checker would have found who changes it.
        self.0
            .with(|alive| assert!(unsafe { *alive }, "it is gone"));
    }

    /// It is used by nobody else.
    fn own(&self) {
        // SAFETY: As above.
        self.0
            .with_mut(|alive| assert!(unsafe { *alive }, "it is gone"));
    }

    fn end(&self) {
        // SAFETY: As above.
        self.0.with_mut(|alive| {
            assert!(
                unsafe { core::mem::replace(&mut *alive, false) },
                "ended twice"
            )
        });
    }
}

/// What outlives a buffer.
struct World {
    gpu: Mortal,
    /// Ends with the buffer.
    buffer: Mortal,
    /// A shadow page.
    mark: Mark<Buffer>,
    /// The meta block.
    page: UserPage,
}

/// As much of `Buffer` as its threads meet in.
struct Buffer {
    life: Arc<Life>,
    waiter: Waiter,
    meta: std::sync::Arc<Meta>,
    pin: Option<PinnedGpu<Revocation>>,
    transfer: Slot,
    /// What a transfer keeps in the buffer beside that, as `Pending`.
    pending: Mortal,
    world: std::sync::Arc<World>,
}

type BufferRef = ARef<Reaped<Buffer>>;

impl Drop for Buffer {
    fn drop(&mut self) {
        self.world.mark.clear();
        drop(self.pin.take());
        self.pending.end();
        self.world.buffer.end();
    }
}

impl Buffer {
    /// Ready for its first transfer, without a pin.
    fn new(reaper: &Handle) -> (BufferRef, std::sync::Arc<World>) {
        Self::make(reaper, false)
    }

    /// The same with one, and its number.
    fn pinned(reaper: &Handle) -> (BufferRef, std::sync::Arc<World>, usize) {
        let (buffer, world) = Self::make(reaper, true);
        let number = buffer.pin.as_ref().unwrap().number();
        (buffer, world, number)
    }

    fn make(reaper: &Handle, pinned: bool) -> (BufferRef, std::sync::Arc<World>) {
        let world = std::sync::Arc::new(World {
            gpu: Mortal::new(),
            buffer: Mortal::new(),
            mark: Mark::new(),
            page: UserPage::new(),
        });
        let life = Life::new().unwrap();
        Attempt::begin(&life).unwrap().succeed();
        let here = world.clone();
        let meta = std::sync::Arc::new(Meta::new(world.page.address()).unwrap());
        let revocation = Revocation {
            life: life.clone(),
            meta: meta.clone(),
            world: world.clone(),
        };
        let pin = pinned.then(|| PinnedGpu::new(revocation));
        let buffer = Reaped::new(
            reaper,
            pin_init!(Buffer {
                life,
                waiter <- Waiter::new(),
                meta: meta,
                pin: pin,
                transfer <- Slot::new(),
                pending: Mortal::new(),
                world: here,
            }),
        );
        (buffer.unwrap(), world)
    }

    /// As `Busy::take`, and what a submission keeps in the buffer.
    fn begin(&self) -> Result<(), Refused> {
        self.life.change(Word::begin_io)?;
        self.pending.own();
        Ok(())
    }

    /// The file system and the drive.
    fn dma(&self) {
        self.world.gpu.touch();
    }

    /// Begins a transfer that ends by itself, as `io::start`.
    fn submit(this: &BufferRef, file: &IoFile) -> Result<(), Refused> {
        this.begin()?;
        let segment = |_: &Reaped<Buffer>| Ok(Segment::user(4096, 4096));
        match submit(this.clone(), file.clone(), Direction::Read, 0, segment) {
            Ok(Submitted::Queued) => (),
            Ok(Submitted::Done(_)) => Buffer::finish(this.clone(), 1),
            Err(e) => panic!("{e:?}"),
        }
        Ok(())
    }

    /// The end of a transfer, as `io::end` and `io::finish`.
    fn finish(this: BufferRef, fence: u64) {
        this.pending.own();
        let buffer = this.clone();
        this.life.end_io();
        drop(this);
        buffer.meta.finish(4096, fence);
    }
}

impl Completed for Buffer {
    fn completed(this: BufferRef, outcome: Outcome) {
        assert_eq!(outcome.result, Ok(4096));
        Buffer::finish(this, 1);
    }

    fn slot(&self) -> &Slot {
        &self.transfer
    }
}

impl Deferred for Buffer {
    fn deferred(this: BufferRef) {
        Buffer::finish(this, 1);
    }
}

/// What the free callback does to a buffer that is pinned.
struct Revocation {
    life: Arc<Life>,
    meta: std::sync::Arc<Meta>,
    world: std::sync::Arc<World>,
}

impl gpu::Owner for Revocation {
    fn stop(&self) {
        self.world.buffer.touch();
        self.life.revoke(0, || ());
    }

    fn gone(&self) {
        self.meta.died();
        self.world.buffer.touch();
    }
}

/// The free callback of a buffer without a pin, and the GPU driver that called it.
fn free_gpu_memory(life: &Life, world: &World) {
    life.revoke(0, || ());
    world.gpu.end();
}

/// Closes the mapping and gives its reference up, as `Mapping::drop`.
fn munmap(buffer: BufferRef) {
    buffer.life.set(Word::close);
    drop(buffer);
}

fn reaper() -> Reaper {
    Reaper::new(c"model").unwrap()
}

/// Unloads the module: no buffer, and no code of ours, is left.
fn exit(reaper: Reaper, world: &World) {
    drop(reaper);
    unload();
    assert!(!alive(&world.buffer), "the buffer leaks");
}

fn alive(mortal: &Mortal) -> bool {
    // SAFETY: The checker would have found who changes it.
    mortal.0.with(|alive| unsafe { *alive })
}

/// One transfer from begin to end, if the buffer takes it.
fn transfer(buffer: &BufferRef) -> Result<(), Refused> {
    buffer.begin()?;
    buffer.dma();
    Buffer::finish(buffer.clone(), 1);
    Ok(())
}

/// GPU memory is not freed under a transfer; none begins afterwards; the callback ends.
#[test]
fn free_waits_for_the_transfer() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        let other = buffer.clone();
        let io = thread::spawn(move || {
            let _ = transfer(&other);
            let _ = transfer(&other);
        });
        free_gpu_memory(&buffer.life, &world);
        assert_eq!(buffer.begin(), Err(Refused::Busy));
        io.join().unwrap();
        munmap(buffer);
        exit(reaper, &world);
    });
}

/// Of two that submit one may get `EBUSY`, and only while the other's transfer is under way.
#[test]
fn one_transfer_at_a_time() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        let other = buffer.clone();
        let io = thread::spawn(move || transfer(&other));
        let here = transfer(&buffer);
        let there = io.join().unwrap();
        assert!(here.is_ok() || there.is_ok());
        assert_eq!(transfer(&buffer), Ok(()));
        munmap(buffer);
        exit(reaper, &world);
    });
}

/// The file, of which a drive reads into the GPU memory.
fn file(world: &std::sync::Arc<World>, at_once: bool) -> IoFile {
    let world = world.clone();
    IoFile::new(at_once, move || world.gpu.touch())
}

/// The completion comes in an interrupt, while the process unmaps the buffer and the module goes.
#[test]
fn munmap_and_exit_against_a_completion() {
    for at_once in [false, true] {
        model(Any, move || {
            let reaper = reaper();
            let (buffer, world) = Buffer::new(&reaper.handle());
            let file = file(&world, at_once);
            Buffer::submit(&buffer, &file).unwrap();
            munmap(buffer);
            exit(reaper, &world);
            assert_eq!(std::sync::Arc::strong_count(&file.0), 1);
        });
    }
}

/// The next transfer begins as soon as the process sees the end of the last one, while the code of
/// that one's completion still runs.
#[test]
fn one_transfer_after_the_other() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        let file = file(&world, false);
        Buffer::submit(&buffer, &file).unwrap();
        if world.page.load(0) == 1 {
            assert_eq!(Buffer::submit(&buffer, &file), Ok(()));
        }
        munmap(buffer);
        exit(reaper, &world);
        assert_eq!(std::sync::Arc::strong_count(&file.0), 1);
    });
}

/// Another thread begins the next one, of another file, then: the file system may still be looking at
/// the first one's iocb.
#[test]
fn the_next_transfer_waits_for_the_file_system() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        let (first, second) = (file(&world, false), file(&world, true));
        let (next, seen) = (buffer.clone(), world.clone());
        let other = thread::spawn(move || {
            if seen.page.load(0) == 1 {
                assert_eq!(Buffer::submit(&next, &second), Ok(()));
            }
        });
        Buffer::submit(&buffer, &first).unwrap();
        other.join().unwrap();
        munmap(buffer);
        exit(reaper, &world);
        assert_eq!(std::sync::Arc::strong_count(&first.0), 1);
    });
}

/// The same with the free callback in a third thread.
#[test]
fn munmap_and_exit_and_free_against_a_completion() {
    model(AtMost(4), || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        let file = file(&world, false);
        Buffer::submit(&buffer, &file).unwrap();
        let (life, gpu) = (buffer.life.clone(), world.clone());
        let free = thread::spawn(move || free_gpu_memory(&life, &gpu));
        munmap(buffer);
        free.join().unwrap();
        exit(reaper, &world);
    });
}

/// The free callback may come, and run, while the process unmaps the buffer and the module goes.
#[test]
fn munmap_and_exit_against_the_callback() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world, number) = Buffer::pinned(&reaper.handle());
        let gpu = world.clone();
        let free = thread::spawn(move || {
            gpu::free(number);
            gpu.gpu.end();
        });
        munmap(buffer);
        exit(reaper, &world);
        free.join().unwrap();
    });
}

/// The same while a transfer is under way.
#[test]
fn munmap_and_exit_against_the_callback_and_a_completion() {
    model(AtMost(4), || {
        let reaper = reaper();
        let (buffer, world, number) = Buffer::pinned(&reaper.handle());
        let file = file(&world, false);
        Buffer::submit(&buffer, &file).unwrap();
        let gpu = world.clone();
        let free = thread::spawn(move || {
            gpu::free(number);
            gpu.gpu.end();
        });
        munmap(buffer);
        exit(reaper, &world);
        free.join().unwrap();
    });
}

/// A pin ends after the callbacks that know it, however many the GPU driver makes, and they leave its
/// last reference to it; later ones do nothing.
#[test]
fn a_pin_ends_after_its_callbacks() {
    struct Watched(std::sync::Arc<Mortal>);

    impl gpu::Owner for Watched {
        fn stop(&self) {
            self.0.touch();
        }

        fn gone(&self) {
            self.0.touch();
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.own();
        }
    }

    model(Any, || {
        let mortal = std::sync::Arc::new(Mortal::new());
        let pin = PinnedGpu::new(Watched(mortal.clone()));
        let number = pin.number();
        let callbacks = [(); 2].map(|()| thread::spawn(move || gpu::free(number)));
        drop(pin);
        mortal.end();
        unload();
        for callback in callbacks {
            callback.join().unwrap();
        }
    });
}

/// A thread submits while this one calls `meanwhile` and unmaps the buffer. The module goes after
/// both. The process is told the end of what was not refused.
fn submission_against(meanwhile: fn(&Buffer, &World)) {
    for at_once in [false, true] {
        model(AtMost(5), move || {
            let reaper = reaper();
            let (buffer, world) = Buffer::new(&reaper.handle());
            let file = file(&world, at_once);
            let (other, theirs) = (buffer.clone(), file.clone());
            let submission = thread::spawn(move || Buffer::submit(&other, &theirs));
            meanwhile(&buffer, &world);
            munmap(buffer);
            let submitted = submission.join().unwrap();
            assert!(matches!(submitted, Ok(()) | Err(Refused::Busy)));
            exit(reaper, &world);
            assert_eq!(world.page.load(0), u64::from(submitted.is_ok()));
            assert_eq!(std::sync::Arc::strong_count(&file.0), 1);
        });
    }
}

#[test]
fn submission_against_munmap() {
    submission_against(|_, _| ());
}

/// The free callback may come before the transfer begins, while it is submitted, or after its end.
#[test]
fn submission_against_free() {
    submission_against(|buffer, world| {
        free_gpu_memory(&buffer.life, world);
        let word = buffer.life.word();
        assert!(word.is_drained());
        assert_eq!(word.begin_io(), Err(Refused::Busy));
    });
}

/// Segments that a storage driver gives back after the transfer, munmap or exit.
#[test]
fn segments_outlive_all_else() {
    model(AtMost(3), || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        buffer.begin().unwrap();
        buffer.life.change(Word::begin_segment).unwrap();
        let segment = buffer.clone();
        thread::spawn(move || {
            interrupt(|| {
                segment.dma();
                assert!(segment.life.end_segment());
                drop(segment);
            })
        });
        let other = buffer.clone();
        let end = thread::spawn(move || interrupt(|| Buffer::finish(other, 1)));
        free_gpu_memory(&buffer.life, &world);
        assert!(!buffer.life.end_segment());
        munmap(buffer);
        end.join().unwrap();
        exit(reaper, &world);
    });
}

/// Segments and their transfer end at once: the last one wakes the callback.
#[test]
fn the_last_end_wakes_the_callback() {
    fn check(segments: usize) {
        let life = Life::new().unwrap();
        Attempt::begin(&life).unwrap().succeed();
        let gpu = std::sync::Arc::new(Mortal::new());
        life.change(Word::begin_io).unwrap();
        for _ in 0..segments {
            life.change(Word::begin_segment).unwrap();
        }
        for end in 0..=segments {
            let (life, gpu) = (life.clone(), gpu.clone());
            thread::spawn(move || {
                gpu.touch();
                match end {
                    0 => life.end_io(),
                    _ => assert!(life.end_segment()),
                }
            });
        }
        life.revoke(0, || ());
        gpu.end();
    }

    model(Any, || check(1));
    model(AtMost(2), || check(2));
}

/// A storage driver finds the buffer by a shadow page while its last references go.
#[test]
fn recognition_against_the_last_put() {
    model(AtMost(3), || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        world.mark.set(&buffer);
        let other = world.clone();
        let driver = thread::spawn(move || {
            interrupt(|| {
                if let Some(found) = other.mark.find() {
                    found.pending.touch();
                    assert_eq!(found.life.change(Word::begin_segment), Err(Refused::Phase));
                }
            })
        });
        let other = buffer.clone();
        thread::spawn(move || interrupt(|| drop(other)));
        munmap(buffer);
        // The driver has given the table back.
        driver.join().unwrap();
        exit(reaper, &world);
    });
}

/// A process that waits and is killed: either it or the completion ends the transfer.
#[test]
fn one_ends_a_transfer_that_is_waited_for() {
    for killed in [false, true] {
        model(Any, move || {
            let reaper = reaper();
            let (buffer, world) = Buffer::new(&reaper.handle());
            buffer.begin().unwrap();
            buffer.waiter.begin();
            let other = buffer.clone();
            thread::spawn(move || {
                interrupt(|| {
                    other.dma();
                    other.pending.own();
                    match other.waiter.tell(&Ok(4096)) {
                        Found::Nobody => unreachable!(),
                        Found::Waiter => (),
                        Found::Gone => other.life.end_io(),
                    }
                    drop(other);
                })
            });
            if killed {
                kill();
            }
            match buffer.waiter.wait() {
                Some(result) => {
                    assert_eq!(result, Ok(4096));
                    buffer.pending.own();
                    buffer.life.end_io();
                    // The next one is not waited for.
                    buffer.begin().unwrap();
                    assert!(matches!(buffer.waiter.tell(&Ok(0)), Found::Nobody));
                    buffer.life.end_io();
                }
                None => assert!(killed),
            }
            free_gpu_memory(&buffer.life, &world);
            munmap(buffer);
            exit(reaper, &world);
        });
    }
}

/// When the process sees the fence value, it sees the result, and the buffer takes the next one.
#[test]
fn the_fence_comes_last() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        buffer.begin().unwrap();
        let other = buffer.clone();
        thread::spawn(move || interrupt(|| Buffer::finish(other, 7)));
        if world.page.load(0) == 7 {
            assert_eq!(world.page.load(8), 4096);
            assert_eq!(transfer(&buffer), Ok(()));
        }
        munmap(buffer);
        exit(reaper, &world);
    });
}

/// When the process sees DIED, nothing begins any more, and nothing is under way.
#[test]
fn nothing_begins_after_died() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        buffer.begin().unwrap();
        let other = buffer.clone();
        thread::spawn(move || interrupt(|| Buffer::finish(other, 1)));
        let (other, gpu) = (buffer.clone(), world.clone());
        let free = thread::spawn(move || {
            free_gpu_memory(&other.life, &gpu);
            other.meta.died();
        });
        if world.page.load(16) == 2 {
            assert!(!alive(&world.gpu));
            assert_eq!(buffer.begin(), Err(Refused::Busy));
            assert!(!buffer.life.word().is_busy());
        }
        free.join().unwrap();
        munmap(buffer);
        exit(reaper, &world);
    });
}

/// MAP against munmap and the callback for what it has just pinned.
#[test]
fn map_against_munmap_and_free() {
    for fails in [false, true] {
        model(AtMost(4), move || {
            let life = Life::new().unwrap();
            let gpu = std::sync::Arc::new(Mortal::new());
            let attempt = Attempt::begin(&life).unwrap();
            assert!(Attempt::begin(&life).is_err());
            let (other, memory) = (life.clone(), gpu.clone());
            let free = thread::spawn(move || {
                other.revoke(0, || ());
                memory.end();
            });
            let other = life.clone();
            let close = thread::spawn(move || other.set(Word::close));
            if fails {
                // The pin waits for its callback.
                free.join().unwrap();
                drop(attempt);
                let next = Attempt::begin(&life);
                close.join().unwrap();
                if let Ok(next) = next {
                    next.succeed();
                }
                assert!(life.change(Word::begin_io).is_err());
            } else {
                attempt.succeed();
                if life.change(Word::begin_io).is_ok() {
                    gpu.touch();
                    life.end_io();
                }
                free.join().unwrap();
                close.join().unwrap();
            }
            assert!(life.change(Word::begin_io).is_err());
        });
    }
}

/// The next MAP after one that failed is as good as the first: its callback waits.
#[test]
fn free_waits_after_a_failed_map() {
    model(Any, || {
        let life = Life::new().unwrap();
        let attempt = Attempt::begin(&life).unwrap();
        life.revoke(0, || ());
        drop(attempt);
        Attempt::begin(&life).unwrap().succeed();
        let gpu = std::sync::Arc::new(Mortal::new());
        life.change(Word::begin_io).unwrap();
        let (other, memory) = (life.clone(), gpu.clone());
        thread::spawn(move || {
            memory.touch();
            other.end_io();
        });
        life.revoke(0, || ());
        gpu.end();
    });
}

/// An end that is put off until sleeping is legal comes once, and holds the buffer until then.
#[test]
fn an_end_that_is_put_off() {
    model(Any, || {
        let reaper = reaper();
        let (buffer, world) = Buffer::new(&reaper.handle());
        buffer.begin().unwrap();
        let other = buffer.clone();
        thread::spawn(move || {
            interrupt(|| {
                other.dma();
                assert!(Reaped::later(other).is_ok());
            })
        });
        munmap(buffer);
        exit(reaper, &world);
    });
}

/// The P2PDMA pages are let go by the callback, not before and not after.
#[test]
fn pages_go_with_the_gpu_memory() {
    model(Any, || {
        let life = Life::new().unwrap();
        Attempt::begin(&life).unwrap().succeed();
        let pages = std::sync::Arc::new(Mortal::new());
        let other = life.clone();
        let io = {
            let pages = pages.clone();
            thread::spawn(move || {
                if other.change(Word::begin_io).is_err() {
                    return;
                }
                let end = pages.clone();
                let memory = Memory(Box::new(move || end.end()));
                *other.memory.lock() = Some(Arc::new(memory, GFP_KERNEL).unwrap());
                let segment = other.memory.lock().as_ref().cloned();
                pages.touch();
                drop(segment);
                other.end_io();
            })
        };
        life.revoke(0, || ());
        assert!(life.memory.lock().is_none());
        io.join().unwrap();
    });
}

/// Marks of the blocks of a chunk, set by several in one word, are all there at its end.
#[test]
fn no_mark_is_lost() {
    model(Any, || {
        let window = std::sync::Arc::new(Window::new(16 * BLOCK).unwrap());
        window.mark(0, 16 * BLOCK as usize);
        let chunk = Chunk {
            base: 0,
            at: BLOCK,
            len: 4 * BLOCK,
        };
        window.open(&chunk, false);
        let drivers: Vec<_> = [1, 2]
            .into_iter()
            .map(|block| {
                let window = window.clone();
                thread::spawn(move || {
                    let at = block * BLOCK as usize;
                    assert_eq!(window.locate(at, 4096), Some(at as u64));
                    window.mark(at, 4096);
                })
            })
            .collect();
        for driver in drivers {
            driver.join().unwrap();
        }
        let holes: Vec<_> = window.untouched(chunk.len).collect();
        assert_eq!(holes.len(), 1);
        assert_eq!(holes[0], 2 * BLOCK..4 * BLOCK);
    });
}
