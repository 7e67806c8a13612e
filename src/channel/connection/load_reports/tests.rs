use super::*;
use crate::pb::xds::data::orca::v3::OrcaLoadReport;

fn report(rate: f64) -> Vec<u8> {
    let load = OrcaLoadReport { cpu_utilization: 0.5, rps_fractional: rate, ..OrcaLoadReport::default() };
    // A field that is not read, the older number of requests per second, so that the length is no multiple of 3.
    [load.encode_to_vec(), vec![3 << 3, 5]].concat()
}

fn trailers(values: &[String]) -> HeaderMap {
    values.iter().map(|value| (LOAD, value.parse().unwrap())).collect()
}

fn base64(message: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(message)
}

/// What the policy makes of trailers.
fn read(trailers: &HeaderMap) -> Result<Option<LoadReport>, Malformed> {
    let message = in_trailers(trailers)?;
    message.map_or(Ok(None), |message| LoadReport::decode(&message).map_err(|_| Malformed))
}

#[test]
fn ch9_7_the_last_report_of_the_trailers_is_read_with_or_without_padding() {
    let expected = LoadReport::decode(&report(10.0)).unwrap();
    let in_trailers = |values: &HeaderMap| read(values).unwrap();
    assert!(expected.is_some());
    let padded = base64(&report(10.0));
    assert!(padded.ends_with('='), "{padded}");
    assert_eq!(in_trailers(&trailers(std::slice::from_ref(&padded))), expected);
    assert_eq!(in_trailers(&trailers(&[padded.trim_end_matches('=').to_owned()])), expected);
    assert_eq!(in_trailers(&trailers(&[base64(&report(20.0)), padded])), expected, "the last one");
}

#[test]
fn ch9_7_a_malformed_report_is_told_from_one_that_is_of_no_use() {
    assert_eq!(read(&HeaderMap::new()).unwrap(), None);
    for malformed in ["?", "AAA=A", "////"] {
        assert!(read(&trailers(&[malformed.to_owned()])).is_err(), "{malformed}");
    }
    for useless in [String::new(), base64(&report(-1.0))] {
        assert_eq!(read(&trailers(&[useless])).unwrap(), None);
    }
}
