//! The choice among the ready localities of a priority.

use std::mem;

use super::{EndpointPicker, Localities};
use crate::balance::command::ConnectionId;

/// A locality in proportion to its weight (CH3.49).
pub(super) fn locality<'a, H>(
    localities: &'a [(u64, EndpointPicker<H>)],
    random: &mut fastrand::Rng,
) -> &'a EndpointPicker<H> {
    let [(_, only)] = localities else {
        let total = localities.last().map_or(1, |(sum, _)| *sum);
        let draw = random.u64(..total);
        let place = localities.partition_point(|(sum, _)| *sum <= draw);
        return &localities[place].1;
    };
    only
}

/// The localities without some of their endpoints.
pub(in crate::balance) fn ready_without<H>(
    localities: &Localities<H>,
    is_left_out: impl Fn(ConnectionId) -> bool,
) -> Localities<H> {
    let (mut before, mut sum) = (0, 0);
    let rest = localities.iter().filter_map(|(end, picker)| {
        let weight = end - mem::replace(&mut before, *end);
        let picker = picker.without(&is_left_out)?;
        sum += weight;
        Some((sum, picker))
    });
    rest.collect()
}
