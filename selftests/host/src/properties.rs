// SPDX-License-Identifier: GPL-2.0

//! Properties over all values that a user can pass.

use crate::{
    extents::{joined, locate, Extent},
    geometry::{joins, read_len, run, Chunk, FileRange, GpuRange, BLOCK, GPU_PAGE},
    holes::{words, Clear, Region, MAX_REGIONS},
    meta::Meta,
    state::Word,
    topology::{acs_is_on, distance, is_local, link, rank, Affinity, Bridge, UNKNOWN},
    window::Window,
};
use nvfs_kernel::pin::UserPage;
use proptest::prelude::*;

/// Numbers near the edges as often as others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..(1u64 << 20),
        (0..(1u64 << 20)).prop_map(|n| u64::MAX - n),
        (0..64u64, 0..16u64).prop_map(|(shift, n)| (1u64 << shift).wrapping_add(n * 512)),
    ]
}

proptest! {
    #[test]
    fn a_gpu_range_is_covered_by_its_pages(va in number(), size in number(), shadow in number()) {
        let Some(range) = GpuRange::new(va, size as i64, shadow) else { return Ok(()) };
        let start = range.pinned_start();
        let len = range.pinned_len();
        prop_assert!(start % GPU_PAGE == 0 && len % GPU_PAGE == 0);
        prop_assert!(start <= va && va - start < GPU_PAGE);
        let end = u128::from(start) + u128::from(len);
        let wanted = u128::from(va) + u128::from(size);
        prop_assert!(end >= wanted && end - wanted < u128::from(GPU_PAGE));
        if size < GPU_PAGE {
            prop_assert!(shadow >= va % GPU_PAGE + size);
        }
    }

    #[test]
    fn a_transfer_stays_in_its_buffer(
        va in number(), size in number(), offset in number(), len in number(),
    ) {
        let Some(range) = GpuRange::new(va, size as i64, u64::MAX) else { return Ok(()) };
        let Some(start) = range.locate(offset, len) else { return Ok(()) };
        prop_assert_eq!(u128::from(start), u128::from(va % GPU_PAGE) + u128::from(offset));
        prop_assert!(start % BLOCK == 0);
        prop_assert!(u128::from(offset) + u128::from(len) <= u128::from(size));
        prop_assert!(start + len <= range.pinned_len());
        if start % GPU_PAGE != 0 {
            prop_assert_eq!(start / GPU_PAGE, (start + len.max(1) - 1) / GPU_PAGE);
        }
    }

    #[test]
    fn a_file_range_never_overflows(offset in number(), size in number()) {
        let sum = u128::from(offset) + u128::from(size);
        let good = offset % BLOCK == 0 && size % BLOCK == 0 && sum <= i64::MAX as u128;
        prop_assert_eq!(FileRange::new(offset as i64, size).is_some(), good);
    }

    #[test]
    fn a_read_never_asks_past_the_last_block(
        pos in number(), want in number(), size in number(), bits in 9..17u32,
    ) {
        let block = 1u64 << bits;
        let ask = read_len(pos, want, size, block);
        prop_assert!(ask <= want);
        if pos >= size {
            prop_assert_eq!(ask, 0);
        } else {
            let left = size - pos;
            prop_assert!(ask >= left.min(want));
            prop_assert!(u128::from(ask) < u128::from(left) + u128::from(block));
        }
    }

    #[test]
    fn every_byte_is_found_again(lens in prop::collection::vec(1..5usize, 1..40), gaps in any::<u64>()) {
        // Pages of one byte; a bit says whether the next one follows in memory.
        let mut phys = 100u64;
        let mut extents = Vec::new();
        for (index, len) in lens.iter().enumerate() {
            extents.push(Extent { phys, len: *len });
            phys += *len as u64 + (gaps >> (index % 64) & 1) * 7;
        }
        let bytes: Vec<u64> = extents
            .iter()
            .flat_map(|e| (0..e.len as u64).map(move |i| e.phys + i))
            .collect();
        let pieces: Vec<Extent> = joined(&extents).map(|e| e.unwrap()).collect();
        let mut starts = Vec::new();
        let mut len = 0;
        for piece in &pieces {
            starts.push(len);
            len += piece.len;
        }
        prop_assert_eq!(len, bytes.len());
        for (offset, phys) in bytes.iter().enumerate() {
            let (index, skip) = locate(&starts, len, offset).unwrap();
            prop_assert_eq!(pieces[index].phys + skip as u64, *phys);
        }
        prop_assert_eq!(locate(&starts, len, len), None);
    }

    /// Whatever comes in whatever order: never two transfers, none on what is ending, segments
    /// only during one, and an ending buffer is dead for good, and drained once nothing is out.
    #[test]
    fn the_life_of_a_buffer(events in prop::collection::vec(0..9u8, 0..60)) {
        let mut word = Word::NEW;
        let (mut mapping, mut busy, mut mapped, mut ending) = (false, false, false, false);
        let (mut revoked, mut segments) = (false, 0u32);
        for event in events {
            match event {
                0 => match word.begin_map() {
                    Ok(next) => {
                        prop_assert!(!mapping && !mapped);
                        (word, mapping) = (next, true);
                    }
                    Err(_) => prop_assert!(mapping || mapped || ending),
                },
                1 if mapping => (word, mapping, mapped) = (word.end_map(), false, true),
                2 if mapping => {
                    let closed = word.bits() & 0x10 != 0;
                    (word, mapping, ending, revoked) = (word.fail_map(), false, closed, false);
                }
                3 => match word.begin_io() {
                    Ok(next) => {
                        prop_assert!(mapped && !busy && !ending);
                        (word, busy) = (next, true);
                    }
                    Err(_) => prop_assert!(!mapped || busy || ending),
                },
                4 if busy => (word, busy) = (word.end_io(), false),
                5 => (word, ending) = (word.close(), true),
                6 if mapping || mapped => (word, ending, revoked) = (word.revoke(), true, true),
                7 => match word.begin_segment() {
                    Ok(next) => {
                        prop_assert!(busy);
                        (word, segments) = (next, segments + 1);
                    }
                    Err(_) => prop_assert!(!busy),
                },
                8 => match word.end_segment() {
                    Ok(next) => {
                        prop_assert!(segments > 0);
                        (word, segments) = (next, segments - 1);
                    }
                    Err(_) => prop_assert!(segments == 0),
                },
                _ => (),
            }
            prop_assert_eq!(word.is_busy(), busy);
            prop_assert_eq!(word.may_continue(), busy && !ending);
            prop_assert_eq!(word.is_revoked(), revoked);
            prop_assert_eq!(word.is_drained(), revoked && !busy && segments == 0);
        }
    }

    /// The runs of clear bits are just the clear bits, in order, and no two of them touch.
    #[test]
    fn holes_are_the_clear_bits(
        words in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 64),
        first in 0..2000usize,
        count in 0..2096usize,
    ) {
        let is_set = |bit: usize| words[bit / 64] >> (bit % 64) & 1 != 0;
        let mut clear = Vec::new();
        let mut end = None;
        for region in Clear::new(|i| words[i], first, count) {
            prop_assert!(region.blocks > 0);
            prop_assert!(end.is_none_or(|end| usize::from(region.start) > end));
            end = Some(usize::from(region.start + region.blocks));
            clear.extend((region.start..region.start + region.blocks).map(usize::from));
        }
        let wanted: Vec<usize> = (0..count).filter(|bit| !is_set(first + bit)).collect();
        prop_assert_eq!(clear, wanted);
    }

    /// A hole is told if it is of whole blocks, or ends behind the file.
    #[test]
    fn holes_are_whole_blocks(start in 0..64u64, len in 1..64u64, end in 0..130u64) {
        let bytes = start * 512..(start + len) * 512;
        let region = Region::of_bytes(bytes.clone(), end * 512);
        let last = bytes.end % BLOCK == 0 || bytes.end >= end * 512;
        prop_assert_eq!(region.is_some(), bytes.start % BLOCK == 0 && last);
        if let Some(region) = region {
            prop_assert_eq!(u64::from(region.start) * BLOCK, bytes.start);
            let end = u64::from(region.start + region.blocks) * BLOCK;
            prop_assert!(end >= bytes.end && end - bytes.end < BLOCK);
        }
    }

    /// The masks of all words together are just the bits of the range, each word once.
    #[test]
    fn masks_are_the_range(first in 0..2000usize, count in 0..2096usize) {
        let mut masks = [0; 64];
        for (word, mask) in words(first, count) {
            prop_assert!(mask != 0 && masks[word] == 0);
            masks[word] = mask;
        }
        for at in 0..64 * 64 {
            let wanted = at >= first && at < first + count;
            prop_assert_eq!(masks[at / 64] >> (at % 64) & 1 != 0, wanted);
        }
    }

    /// The chunks of a transfer follow one another, fit into the shadow buffer, and each byte has
    /// its place.
    #[test]
    fn chunks_cover_a_transfer(
        pages in 0..1000u64,
        block in 0..16u64,
        blocks in 1..5000u64,
        units in 1..256u64,
        segmented: bool,
    ) {
        let shadow = units * GPU_PAGE;
        let size = if block == 0 { blocks * BLOCK } else { (16 - block).min(blocks) * BLOCK };
        let start = pages * GPU_PAGE + block * BLOCK;
        let mut done = 0;
        while done < size {
            let chunk = Chunk::new(start + done, size - done, shadow, segmented).unwrap();
            prop_assert_eq!(chunk.base + chunk.at, start + done);
            prop_assert_eq!(chunk.base % GPU_PAGE, 0);
            prop_assert!(chunk.len > 0 && chunk.len <= size - done);
            prop_assert!(chunk.at + chunk.len <= shadow);
            if segmented {
                let first = (start + done) / shadow;
                prop_assert_eq!((start + done + chunk.len - 1) / shadow, first);
            }
            done += chunk.len;
        }
        prop_assert_eq!(done, size);
    }
}

proptest! {
    /// A run is the longest piece that is contiguous, and no segment goes over where it must not.
    #[test]
    fn a_run_is_contiguous(
        steps in prop::collection::vec(0..4u64, 1..40),
        far in any::<bool>(),
        start in 0..40 * GPU_PAGE,
        len in 1..40 * GPU_PAGE as usize,
    ) {
        // Three of four pages follow the one before.
        let mut address = 1 << 30;
        let pages: Vec<u64> = steps
            .iter()
            .map(|step| {
                address += GPU_PAGE * if *step == 0 { 2 } else { 1 };
                address
            })
            .collect();
        let first = if far { 65520 } else { 0 };
        let mut all = vec![0; first];
        all.extend(&pages);
        let start = first as u64 * GPU_PAGE + start;
        let end = start + len as u64;
        let got = run(&all, start, len);
        if end > all.len() as u64 * GPU_PAGE {
            prop_assert_eq!(got, None);
            return Ok(());
        }
        let byte = |at: u64| all[(at / GPU_PAGE) as usize] + at % GPU_PAGE;
        let (address, got) = got.unwrap();
        prop_assert_eq!(address, byte(start));
        prop_assert!(got > 0 && got <= len);
        for at in (start..start + got as u64).step_by(4096) {
            prop_assert_eq!(byte(at), address + (at - start));
            prop_assert!(at == start || at % (65535 * GPU_PAGE) != 0);
        }
        if got < len {
            let next = start + got as u64;
            prop_assert_eq!(next % GPU_PAGE, 0);
            prop_assert!(byte(next) != byte(next - 1) + 1 || !joins(next));
        }
    }

    /// Splitting loses no byte and puts each on its side.
    #[test]
    fn a_split_loses_nothing(phys in number(), len in any::<usize>(), last in number()) {
        let whole = Extent { phys, len };
        if whole.end().is_none() {
            return Ok(());
        }
        let (first, rest) = whole.split_after(last);
        let behind = rest.map_or(0, |rest| rest.len);
        prop_assert_eq!(first.len.checked_add(behind), Some(len));
        prop_assert_eq!(first.phys, phys);
        prop_assert!(first.len == 0 || first.end().unwrap() - 1 <= last);
        if let Some(rest) = rest {
            prop_assert!(rest.phys > last && rest.len > 0);
            prop_assert_eq!(first.end(), Some(rest.phys));
        }
    }
}

/// Runs what has atomics, in one thread.
fn alone(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What was marked, and not unmarked later, is no hole, whatever the pieces; what is outside
    /// of the chunk is not found. Also if it has marks for sectors.
    #[test]
    fn a_window_is_its_chunk(
        blocks in 1..200u64,
        base in 0..1000u64,
        first in 0..200u64,
        count in 0..200u64,
        marks in prop::collection::vec((0..1600usize, 1..640usize, any::<bool>()), 0..8),
        told in 0..1600u64,
        fine in any::<bool>(),
    ) {
        let first = first % blocks;
        let count = count.min(blocks - first);
        alone(move || {
            let window = Window::new(blocks * BLOCK).unwrap();
            // Of the chunk before.
            window.mark(0, (blocks * BLOCK) as usize);
            let chunk = Chunk { base: base * GPU_PAGE, at: first * BLOCK, len: count * BLOCK };
            window.open(&chunk, fine);
            // All in sectors, of which a block has eight.
            let unit = if fine { 1 } else { 8 };
            let mut marked = vec![false; 8 * blocks as usize];
            let mut refused = false;
            for &(at, len, started) in &marks {
                let end = (at + len).min(8 * blocks as usize);
                if at < end {
                    let whole = at / unit * unit..end.next_multiple_of(unit);
                    match started {
                        true => window.mark(at * 512, (end - at) * 512 - 8),
                        false => window.refuse(at * 512, (end - at) * 512 - 8),
                    }
                    marked[whole].fill(started);
                    refused |= !started;
                }
            }
            let told = told.min(8 * count);
            let mut holes = vec![];
            for bytes in window.untouched(told * 512) {
                assert!(bytes.start % 512 == 0 && bytes.end % 512 == 0 && bytes.start < bytes.end);
                holes.extend(bytes.start / 512..bytes.end / 512);
            }
            let all = told.next_multiple_of(unit as u64);
            let wanted: Vec<u64> =
                (0..all).filter(|at| !marked[(8 * first + at) as usize]).collect();
            assert_eq!(window.is_refused(), refused);
            assert_eq!(window.is_done(told * 512), wanted.is_empty() && !refused);
            assert_eq!(holes, wanted);
            assert_eq!(window.chunk(), (chunk.base + chunk.at, chunk.len));
            for at in 0..blocks {
                let inside = at >= first && at < first + count;
                let wanted = inside.then_some(chunk.base + at * BLOCK);
                assert_eq!(window.locate((at * BLOCK) as usize, BLOCK as usize), wanted);
            }
            assert_eq!(window.locate((first * BLOCK) as usize, usize::MAX), None);
        });
    }

    /// The meta block has what the contract's section 8 says, where it says it.
    #[test]
    fn a_meta_block_is_that_of_the_contract(
        result in any::<i64>(), fence in any::<u64>(), pos in 0..i64::MAX,
        start in any::<u16>(), blocks in 1..u16::MAX, count in 0..MAX_REGIONS,
    ) {
        alone(move || {
            let page = UserPage::new();
            let meta = Meta::new(page.address()).unwrap();
            meta.finish(result, fence);
            assert_eq!((page.load(0), page.load(8)), (fence, result as u64));
            meta.hole(1, Region { start, blocks });
            assert_eq!(page.load(52), u64::from(start) | u64::from(blocks) << 16);
            meta.holes(count, pos);
            assert_eq!(page.load(24), 0xabc0_cba1_abc2_cba3);
            assert_eq!((page.load(32), page.load(36)), (1, count as u64));
            assert_eq!((page.load(40), page.load(16)), (pos as u64, u64::from(count > 0)));
            meta.died();
            assert_eq!((page.load(16), page.load(0)), (2, fence));
            assert!(Meta::new(0).is_err());
        });
    }
}

/// A tree: the parent of each bridge, always an earlier one, or a root bus; and whether ACS is on.
fn tree() -> impl Strategy<Value = Vec<(Option<usize>, bool)>> {
    let bridge = |n: usize| (prop::option::weighted(0.8, 0..n.max(1)), any::<bool>());
    (1..40usize)
        .prop_flat_map(move |n| (0..n).map(bridge).collect::<Vec<_>>())
        .prop_map(|mut t| {
            // The first has none that is earlier.
            t[0].0 = None;
            t
        })
}

/// The bridges above a function below bridge `at`; on a root bus for `None`.
fn path(tree: &[(Option<usize>, bool)], mut at: Option<usize>) -> Vec<Bridge> {
    let mut path = Vec::new();
    while let Some(n) = at {
        path.push(Bridge {
            id: n as u64,
            acs: tree[n].1,
        });
        at = tree[n].0;
    }
    path
}

/// Two functions somewhere in a tree.
fn pair() -> impl Strategy<Value = (Vec<Bridge>, Vec<Bridge>)> {
    tree().prop_flat_map(|tree| {
        let place = || prop::option::weighted(0.9, 0..tree.len());
        let tree = tree.clone();
        (place(), place()).prop_map(move |(a, b)| (path(&tree, a), path(&tree, b)))
    })
}

proptest! {
    #[test]
    fn a_distance_is_that_of_the_contract((gpu, peer) in pair(), local in any::<bool>()) {
        let got = distance(Some(&gpu), Some(&peer), local) as usize;
        // Counted from the top instead: the bridges that both have.
        let common = gpu.iter().rev().zip(peer.iter().rev()).take_while(|(a, b)| a.id == b.id).count();
        if common == 0 {
            prop_assert_eq!(got, if local { 127 } else { 254 } + gpu.len() + peer.len() + 1);
        } else {
            let meeting = gpu[gpu.len() - common];
            let detour = if meeting.acs && common < gpu.len() { common - 1 } else { 0 };
            prop_assert_eq!(got, gpu.len() - common + peer.len() - common + 1 + detour);
        }
    }

    #[test]
    fn without_acs_a_distance_is_symmetric((mut a, mut b) in pair(), local in any::<bool>()) {
        a.iter_mut().chain(&mut b).for_each(|bridge| bridge.acs = false);
        let there = distance(Some(&a), Some(&b), local);
        prop_assert_eq!(there, distance(Some(&b), Some(&a), local));
        prop_assert!(there >= 1);
    }

    #[test]
    fn acs_only_makes_it_longer((gpu, peer) in pair(), local in any::<bool>()) {
        let off = |path: &[Bridge]| {
            path.iter().map(|b| Bridge { acs: false, ..*b }).collect::<Vec<_>>()
        };
        let without = distance(Some(&off(&gpu)), Some(&off(&peer)), local);
        prop_assert!(distance(Some(&gpu), Some(&peer), local) >= without);
    }

    #[test]
    fn any_two_lists_of_bridges_have_a_distance(
        a in prop::collection::vec((0..9u64, any::<bool>()), 0..300),
        b in prop::collection::vec((0..9u64, any::<bool>()), 0..300),
        local in any::<bool>(),
    ) {
        let bridges = |list: Vec<(u64, bool)>| {
            list.into_iter().map(|(id, acs)| Bridge { id, acs }).collect::<Vec<_>>()
        };
        let (a, b) = (bridges(a), bridges(b));
        let known = distance(Some(&a), Some(&b), local);
        prop_assert!((1..=254 + 601).contains(&known));
        prop_assert_eq!(distance(None, Some(&b), local), UNKNOWN);
        prop_assert_eq!(distance(Some(&a), None, local), UNKNOWN);
    }

    #[test]
    fn distance_dominates_rank(
        near in 0..0xffffu32, step in 1..0xffffu32, links in any::<[(u32, u32); 2]>(),
    ) {
        let far = (near + step).min(0xffff);
        let [(a, b), (c, d)] = links;
        prop_assert!(rank(near, a, b) < rank(far, c, d));
        prop_assert_eq!(rank(near, a, b) >> 16, near);
        prop_assert!(rank(near, a, b) & 0xffff <= 160);
        // More lanes are never worse.
        prop_assert!(rank(near, a.saturating_add(1), b) <= rank(near, a, b));
    }

    #[test]
    fn a_link_is_what_its_fields_say(status in any::<u16>()) {
        let (lanes, generation) = link(status);
        prop_assert!(lanes < 64 && generation <= 6);
        if status != 0xffff {
            prop_assert_eq!(lanes, u32::from(status) / 16 % 64);
            prop_assert!(generation == 0 || generation == u32::from(status) % 16);
        }
    }

    #[test]
    fn affinity_loses_no_count(counts in prop::collection::vec((any::<u32>(), number()), 0..50)) {
        let mut affinity = Affinity::new();
        let (mut columns, mut cross, mut all) = ([0u64; 32], 0u64, 0u64);
        for (seed, count) in counts {
            let distance = if seed % 2 == 0 { seed % 160 } else { seed };
            affinity.add(distance, count);
            all = all.saturating_add(count);
            if distance >= 127 {
                cross = cross.saturating_add(count);
            } else if (1..=32).contains(&distance) {
                let column = &mut columns[distance as usize - 1];
                *column = column.saturating_add(count);
            }
        }
        prop_assert_eq!(affinity.columns, columns);
        prop_assert_eq!(affinity.cross, cross);
        let exact = if all == 0 { 0 } else { u128::from(cross) * 100 / u128::from(all) };
        prop_assert!(affinity.cross_percent().abs_diff(exact as u64) <= 1);
        if all < u64::MAX / 100 {
            prop_assert_eq!(affinity.cross_percent(), exact as u64);
        }
    }
}

#[test]
fn the_examples_of_the_contract() {
    let path = |ids: &[u64]| {
        ids.iter()
            .map(|&id| Bridge { id, acs: false })
            .collect::<Vec<_>>()
    };
    let (gpu, same, other) = (path(&[3, 2, 1]), path(&[4, 2, 1]), path(&[5]));
    assert_eq!(distance(Some(&gpu), Some(&same), true), 3);
    assert_eq!(distance(Some(&gpu), Some(&other), true), 0x84);
    assert_eq!(distance(Some(&gpu), Some(&[]), true), 0x83);
    assert_eq!(distance(Some(&gpu), Some(&other), false), 0x103);
    assert_eq!(distance(Some(&[]), Some(&[]), true), 0x80);
    assert_eq!(rank(3, 1, 1), 0x0003_009f);
    assert_eq!(rank(3, 16, 5), 0x0003_0050);
    assert_eq!(rank(3, 16, 6), 0x0003_0040);
    assert_eq!(rank(UNKNOWN, 0, 0), 0xffff_00a0);
    assert_eq!(link(0xffff), (0, 0));
    assert_eq!(link(0x3104), (16, 4));
    // A capability without functions, bits that do not exist.
    assert!(!acs_is_on(0, 0x7f) && !acs_is_on(1, 0xff80) && acs_is_on(1, 0x40));
    let far = |_, _| 20;
    let near = |_, _| 10;
    assert!(is_local(None, None, far) && is_local(Some(0), Some(0), near));
    assert!(!is_local(Some(0), None, near) && !is_local(None, Some(0), near));
    assert!(!is_local(Some(0), Some(1), far));
}
