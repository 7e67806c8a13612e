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

#[test]
fn ch9_7_a_report_above_the_limit_is_malformed_and_not_decoded() {
    // Padded by a field that is not read, so that the report itself is good.
    let of_length = |length: usize| {
        let mut message = report(10.0);
        message.extend([
            15 << 3 | 2,
            0x80 | u8::try_from(length % 128).unwrap(),
            u8::try_from(length / 128).unwrap(),
        ]);
        message.extend(vec![0; length]);
        base64(&message)
    };
    let longest =
        (0..MAX_LOAD_REPORT).rev().map(of_length).find(|value| value.len() <= MAX_LOAD_REPORT).unwrap();
    assert_eq!(longest.len(), MAX_LOAD_REPORT);
    assert!(read(&trailers(std::slice::from_ref(&longest))).unwrap().is_some());
    assert!(read(&trailers(&[format!("{longest}A")])).is_err());
    assert!(read(&trailers(&["A".repeat(1_250_000)])).is_err());
}
