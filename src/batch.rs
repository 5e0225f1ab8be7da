// SPDX-License-Identifier: GPL-2.0

//! BATCH_IO: up to 256 reads and writes in one ioctl. All are checked before the first is started.
//!
//! The asynchronous ones are started first, under one plug, in their order; then the synchronous
//! ones are done, one after the other. What was started ends by itself, whatever becomes of the
//! others.
//!
//! Contract section 12.

use crate::{
    abi::{
        BatchArgs,
        IoArgs, //
    },
    driver::Driver,
    io::{
        Begin,
        Candidate,
        Io,
        Wait, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};
use nvfs_kernel::{
    platform,
    plug::Plug, //
};
use pin_init::stack_pin_init;

/// The most entries.
const MAX_ENTRIES: usize = 256;

/// The ioctl BATCH_IO. May sleep; a fatal signal ends all waiting for transfers.
pub(crate) fn submit(driver: ArcBorrow<'_, Driver>, args: &BatchArgs) -> Result {
    let begin = Begin::now();
    let stats = &driver.stats;
    if begin.detailed {
        stats.count(Counter::Batches);
        stats.count(Counter::BatchOps);
    }
    let done = Batch::check(&driver, args, begin).and_then(Batch::run);
    stats.count(match done {
        Ok(()) => Counter::BatchesOk,
        Err(_) => Counter::BatchesErr,
    });
    if begin.detailed {
        stats.take(Counter::BatchOps, 1);
        if done.is_ok() {
            stats.count(Counter::BatchesTimed);
            stats.add(Counter::BatchMicros, begin.micros());
        }
    }
    done
}

/// An entry, as far as it has come.
enum Entry {
    /// Copied from the process.
    Given(IoArgs),
    /// What it refers to is there.
    Found(Candidate),
    /// Its checks passed, so its buffer is busy.
    Checked(Io),
    /// Started, or over.
    Gone,
}

/// A batch under way. When it is dropped, entries that passed their checks and were not started end
/// with `EINVAL`.
struct Batch<'a> {
    driver: &'a Driver,
    context: u64,
    entries: KVVec<Entry>,
}

impl<'a> Batch<'a> {
    /// Checks all entries. May sleep.
    ///
    /// Errors: `EINVAL` for a wrong number of entries; `ENOMEM`; what the first bad entry fails
    /// with. That one and those after it are left alone.
    fn check(driver: &'a Driver, args: &BatchArgs, begin: Begin) -> Result<Self> {
        let count = usize::try_from(args.nents).map_err(|_| EINVAL)?;
        if count == 0 || count > MAX_ENTRIES {
            return Err(EINVAL);
        }
        let mut batch = Self {
            driver,
            context: args.ctx_id,
            entries: KVVec::with_capacity(count, GFP_KERNEL)?,
        };
        // A process may hold up a copy, and the server of a file the look at that, for as long as it
        // likes. Freeing GPU memory waits for busy buffers: none is busy until all that is over.
        let copied = batch.copy(args, count);
        let (reached, found) = batch.find_all(begin);
        for index in 0..reached {
            batch
                .take(index, begin)
                .inspect_err(|e| batch.explain(index, *e))?;
        }
        found
            .and(copied)
            .inspect_err(|e| batch.explain(reached, *e))?;
        Ok(batch)
    }

    /// Copies the entries up to the first that cannot be read.
    fn copy(&mut self, args: &BatchArgs, count: usize) -> Result {
        for index in 0..count {
            // There is room.
            self.entries
                .push(Entry::Given(args.entry(index)?), GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Looks up what the entries refer to. Returns the index of the first that fails, or their number.
    fn find_all(&mut self, begin: Begin) -> (usize, Result) {
        let count = self.entries.len();
        for index in 0..count {
            let found = self.find(index, begin);
            if found.is_err() {
                return (index, found);
            }
        }
        (count, Ok(()))
    }

    fn find(&mut self, index: usize, begin: Begin) -> Result {
        let entry = self.entries.get_mut(index).ok_or(EINVAL)?;
        if let Entry::Given(args) = core::mem::replace(entry, Entry::Gone) {
            *entry = Entry::Found(Candidate::find(self.driver, args, begin)?);
        }
        Ok(())
    }

    fn take(&mut self, index: usize, begin: Begin) -> Result {
        let entry = self.entries.get_mut(index).ok_or(EINVAL)?;
        if let Entry::Found(candidate) = core::mem::replace(entry, Entry::Gone) {
            *entry = Entry::Checked(candidate.take(self.driver, begin)?);
        }
        Ok(())
    }

    /// Starts all, and waits for the synchronous ones. The first that fails at once ends it.
    fn run(mut self) -> Result {
        let (reached, started) = self.start();
        self.wait(reached).and(started)
    }

    /// Starts the asynchronous entries, under one plug. Returns the index of the first that was not
    /// reached.
    fn start(&mut self) -> (usize, Result) {
        stack_pin_init!(let _plug = Plug::start());
        let count = self.entries.len();
        for index in 0..count {
            let started = self.each(index, false, |io, driver| io.start(driver));
            if started.is_err() {
                return (index, started);
            }
        }
        (count, Ok(()))
    }

    /// Does the synchronous entries before index `reached`, one after the other.
    fn wait(&mut self, reached: usize) -> Result {
        for index in 0..reached {
            self.each(index, true, |io, driver| io.run(driver, Wait::Killable))?;
        }
        Ok(())
    }

    /// Does `f` with the entry at `index` if it is of that kind, unless the task is being killed.
    fn each(
        &mut self,
        index: usize,
        sync: bool,
        f: impl FnOnce(Io, &Driver) -> Result<i64>,
    ) -> Result {
        let Some(entry) = self.entries.get_mut(index) else {
            return Err(EINVAL);
        };
        if !matches!(entry, Entry::Checked(io) if io.is_sync() == sync) {
            return Ok(());
        }
        if platform::is_dying() {
            return Err(EINTR);
        }
        match core::mem::replace(entry, Entry::Gone) {
            Entry::Checked(io) => f(io, self.driver)
                .map(|_| ())
                .inspect_err(|e| self.explain(index, *e)),
            _ => Ok(()),
        }
    }

    /// The process is told only that the batch failed.
    fn explain(&self, index: usize, e: Error) {
        if self.driver.path_log.allows() {
            pr_warn!(
                "batch {}: entry {} failed with error {}\n",
                self.context,
                index,
                e.to_errno()
            );
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for entry in self.entries.iter_mut() {
            if let Entry::Checked(io) = core::mem::replace(entry, Entry::Gone) {
                io.refuse(self.driver, EINVAL);
            }
        }
    }
}
