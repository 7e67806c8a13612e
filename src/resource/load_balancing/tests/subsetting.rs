use super::*;

const SUBSETTING: &str = "random_subsetting.v3.RandomSubsetting";

fn subset(subset_size: Option<u32>, child: Option<google::Any>) -> google::Any {
    let subset_size = subset_size.map(|value| google::UInt32Value { value });
    let child_policy = child.map(|child| list([unknown(), child]));
    lb(SUBSETTING, &random_subsetting::RandomSubsetting { subset_size, child_policy })
}

fn of(size: u32, child_policy: LbPolicy) -> LbPolicy {
    let subset_size = NonZeroU32::new(size).unwrap();
    LbPolicy::RandomSubsetting(RandomSubsetting { subset_size, child_policy: Box::new(child_policy) })
}

#[test]
fn ch3_62_accepts_subsets_around_any_policy_and_inside_localities() {
    for size in [1, 20, u32::MAX] {
        let parsed = parse_list([subset(Some(size), Some(round_robin()))]);
        assert_eq!(parsed, Ok(of(size, LbPolicy::RoundRobin)));
    }
    let inside = list([subset(Some(2), Some(round_robin()))]);
    let locality = wrr_locality::WrrLocality { endpoint_picking_policy: Some(inside) };
    let parsed = parse_list([subset(Some(10), Some(lb(WRR_LOCALITY, &locality)))]);
    let expected = of(10, in_each_locality(of(2, LbPolicy::RoundRobin)));
    assert_eq!(parsed, Ok(expected.clone()));
    assert_eq!(
        serde_json::to_value(&expected).unwrap()["random_subsetting"]["subset_size"],
        serde_json::json!(10)
    );
}

#[test]
fn ch3_61_rejects_subsets_without_a_size_or_a_policy_inside() {
    let at = format!("{AT}.typed_config");
    for size in [None, Some(0)] {
        let e = parse_list([subset(size, Some(round_robin())), round_robin()]).unwrap_err();
        assert_eq!(e.to_string(), format!("{at}.subset_size: must be set and greater than 0"));
    }
    let e = parse_list([subset(Some(1), None), round_robin()]).unwrap_err();
    assert_eq!(e.to_string(), format!("{at}.child_policy: must be set"));
    let e = parse_list([subset(Some(1), Some(unknown()))]).unwrap_err();
    let reason = "none is supported: a.Unknown, a.Unknown";
    assert_eq!(e.to_string(), format!("{at}.child_policy.policies: {reason}"));
    let e = parse_list([broken(SUBSETTING), round_robin()]).unwrap_err();
    assert_eq!(e.path(), format!("{at}.value"));
}

#[test]
fn c11_counts_subsets_among_the_nested_policies() {
    let nested = |depth: usize| (1..depth).fold(round_robin(), |inner, _| subset(Some(3), Some(inner)));
    let expected = (1..16).fold(LbPolicy::RoundRobin, |inner, _| of(3, inner));
    assert_eq!(parse_list([nested(16)]), Ok(expected));
    let e = parse_list([nested(17)]).unwrap_err();
    assert_eq!(e.reason(), "policies are nested deeper than 16");
}
