use super::*;

use alloc::collections::BTreeSet;

/// Checks the order, the bounds, the sums and the sizes of everything below `node`, whose
/// entries must be at least `low` and below `high`. Returns sums, number of entries and depth.
fn check<K: Copy + Ord + core::fmt::Debug>(
    node: &SumTreeNode<K>,
    low: Option<&WeightedEntry<K>>,
    high: Option<&WeightedEntry<K>>,
) -> (Sums, usize, usize) {
    assert!(node.len() <= node.max());
    match node {
        SumTreeNode::Leaf(entries) => {
            assert!(entries.is_sorted_by(|a, b| a < b), "{entries:?}");
            assert!(low.is_none_or(|low| entries.iter().all(|entry| entry >= low)));
            assert!(high.is_none_or(|high| entries.iter().all(|entry| entry < high)));
            let sums = entries.iter().map(WeightedEntry::sums);
            (sums.fold(Sums::default(), Sums::plus), entries.len(), 1)
        }
        SumTreeNode::Inner(branches) => {
            let mut sums = Sums::default();
            let mut len = 0;
            let mut depths = BTreeSet::new();
            for (at, branch) in branches.iter().enumerate() {
                let low = if at == 0 { low } else { Some(&branch.floor) };
                let high = branches.get(at + 1).map(|next| &next.floor).or(high);
                let (below, count, depth) = check(&branch.node, low, high);
                assert!(count > 0, "an empty child");
                assert_eq!(below, branch.sums);
                sums = sums.plus(below);
                len += count;
                depths.insert(depth);
            }
            let small = branches.windows(2);
            let small = small.filter(|two| two.iter().all(|branch| branch.node.is_small()));
            assert_eq!(small.count(), 0, "two small neighbours");
            assert_eq!(depths.len(), 1, "leaves at different depths");
            (sums, len, 1 + depths.first().unwrap())
        }
    }
}

fn check_tree(tree: &SumTree<u64>, model: &BTreeSet<WeightedEntry<u64>>) -> usize {
    let (sums, len, depth) = check(&tree.root, None, None);
    let want = model.iter().map(WeightedEntry::sums);
    let want = want.fold(Sums::default(), Sums::plus);
    assert_eq!((sums, len), (want, model.len()));
    assert_eq!((tree.total(), tree.len()), (want, model.len()));
    depth
}

/// A sequence that looks random enough to mix the orders (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn entry(&mut self, serial: u32) -> WeightedEntry<u64> {
        // A third of the entries want the same, so that keys and serials decide, too.
        let wants = match self.below(3) {
            0 => 7,
            1 => self.below(20),
            _ => self.below(1_000_000_000),
        };
        WeightedEntry {
            key: self.below(50),
            wants: Capacity::from_micros(wants),
            weight: NonZeroU32::MIN.saturating_add(self.below(4) as u32),
            serial,
        }
    }
}

#[test]
fn grows_and_shrinks_like_a_set() {
    for seed in 1..=4 {
        let mut random = Random(seed << 32 | 0x9e37_79b9);
        let mut tree = SumTree::new();
        let mut model = BTreeSet::new();
        let mut depth = 0;
        // Grows to several thousand entries, then shrinks to none; out of 10 steps so many insert.
        for (step, inserts) in core::iter::repeat_n(9, 8000)
            .chain(core::iter::repeat_n(5, 4000))
            .chain(core::iter::repeat_n(1, 11_000))
            .enumerate()
        {
            let entry = random.entry(step as u32);
            if random.below(10) < inserts {
                tree.insert(entry);
                model.insert(entry);
            } else if let Some(&found) = model.range(entry..).next() {
                assert!(tree.remove(&found));
                model.remove(&found);
            } else {
                assert!(!tree.remove(&entry));
            }
            if step % 500 == 0 {
                depth = depth.max(check_tree(&tree, &model));
            }
        }
        while let Some(last) = model.pop_last() {
            assert!(tree.remove(&last));
            assert!(!tree.remove(&last), "removed twice");
        }
        assert_eq!(check_tree(&tree, &model), 1);
        assert!((3..=4).contains(&depth), "depth {depth}");
    }
}

/// Whole ranges go and come back, so that leaves and inner nodes lose all they have, and entries
/// come below the floor of a child that has become the first before its node is joined.
#[test]
fn survives_the_loss_of_whole_ranges() {
    let mut random = Random(7);
    let mut tree = SumTree::new();
    let mut model = BTreeSet::new();
    for round in 0..3000 {
        // Swings between thousands of entries and a few.
        let (inserts, width) = [(60, 10_000), (40, 50_000)][round / 300 % 2];
        let at = random.below(1_000_000);
        for serial in 0..inserts {
            let mut entry = random.entry(round as u32 * 100 + serial);
            entry.wants = Capacity::from_micros(at + random.below(20_000));
            entry.weight = NonZeroU32::MIN;
            tree.insert(entry);
            model.insert(entry);
        }
        let at = random.below(1_000_000);
        let in_range =
            |entry: &&WeightedEntry<u64>| (at..at + width).contains(&entry.wants.as_micros());
        let mut lost: Vec<_> = model.iter().filter(in_range).copied().collect();
        if round % 2 == 0 {
            lost.reverse();
        }
        for entry in lost {
            assert!(tree.remove(&entry));
            model.remove(&entry);
        }
        if round % 20 == 0 {
            check_tree(&tree, &model);
        }
    }
}

#[test]
fn sums_before_equal_the_sums_of_a_set() {
    let mut random = Random(42);
    let mut tree = SumTree::new();
    let mut model = BTreeSet::new();
    for serial in 0..3000 {
        let entry = random.entry(serial);
        tree.insert(entry);
        model.insert(entry);
    }
    // Stale bounds between nodes must not show.
    for entry in model.iter().copied().step_by(3).collect::<Vec<_>>() {
        tree.remove(&entry);
        model.remove(&entry);
    }
    let mut before = Sums::default();
    for entry in &model {
        assert_eq!(tree.sums_before(entry), before);
        before = before.plus(entry.sums());
    }
    assert_eq!(tree.sums_while(|_, _| true), before);
    assert_eq!(tree.sums_while(|_, _| false), Sums::default());
}

#[test]
fn one_sided_growth_keeps_the_tree_shallow() {
    let entry = |wants| WeightedEntry {
        key: 0,
        wants: Capacity::from_micros(wants),
        weight: NonZeroU32::MIN,
        serial: 0,
    };
    let mut tree = SumTree::new();
    let mut model = BTreeSet::new();
    for wants in 0..5000 {
        tree.insert(entry(wants));
        model.insert(entry(wants));
    }
    assert!(check_tree(&tree, &model) <= 4);
    // A window that moves up leaves nothing behind.
    for wants in 5000..20_000 {
        tree.insert(entry(wants));
        model.insert(entry(wants));
        tree.remove(&entry(wants - 5000));
        model.remove(&entry(wants - 5000));
    }
    assert!(check_tree(&tree, &model) <= 4);
}
