//! Files in the place of management servers: rules D1 to D9.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;
use xdskit::{
    Client, Observed, ResourceSelector, Watch,
    config::{Bootstrap, Node, PathSource},
    error::Code,
    resource::ClusterLoadAssignment,
};

use crate::common::{BAD, Cluster, note, soon};

fn client(file: PathSource) -> Client {
    let bootstrap = Bootstrap::builder().node(Node::new("test-node")).source_for::<Cluster>(file);
    Client::builder(bootstrap.build().unwrap()).build().unwrap()
}

/// A file of clusters in JSON, each with its note.
fn clusters(version: &str, clusters: &[(&str, &str)]) -> String {
    let cluster = |(name, note): &(&str, &str)| {
        json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": name,
            "edsClusterConfig": { "serviceName": note },
        })
    };
    let resources: Vec<_> = clusters.iter().map(cluster).collect();
    json!({ "versionInfo": version, "resources": resources }).to_string()
}

fn shop(note: &str) -> String {
    clusters(note, &[("shop", note)])
}

/// Puts a file into place as a whole.
fn rename_over(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

fn in_dir(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

fn version(seen: &Observed<Cluster>) -> Option<&str> {
    let Observed::Present { version, .. } = seen else { return None };
    Some(version.as_str())
}

async fn until(watch: &mut Watch<Cluster>, expected: &str) {
    soon(watch.wait_for(|seen| note(seen) == Some(expected) && seen.error().is_none())).await.unwrap();
}

async fn warned(watch: &mut Watch<Cluster>, code: Code) -> Arc<Observed<Cluster>> {
    soon(watch.wait_for(|seen| seen.error().is_some_and(|error| error.code() == code))).await.unwrap()
}

#[tokio::test]
async fn d2_a_file_is_read_and_read_again_however_it_changes() {
    let (_dir, path) = in_dir("clusters.json");
    fs::write(&path, shop("one")).unwrap();
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    until(&mut watch, "one").await;
    assert_eq!(version(&watch.latest()), Some("one"), "D6");
    rename_over(&path, &shop("renamed over"));
    until(&mut watch, "renamed over").await;
    fs::write(&path, shop("in place")).unwrap();
    until(&mut watch, "in place").await;
    fs::remove_file(&path).unwrap();
    let seen = warned(&mut watch, Code::Unavailable).await;
    assert_eq!(note(&seen), Some("in place"), "the last good one stays");
    fs::write(&path, shop("created")).unwrap();
    until(&mut watch, "created").await;
}

#[tokio::test]
async fn a_file_over_the_limit_is_resource_exhausted_and_the_last_good_stays() {
    let (_dir, path) = in_dir("clusters.json");
    fs::write(&path, shop("one")).unwrap();
    let file = PathSource::new(&path);
    let bootstrap = Bootstrap::builder().node(Node::new("test-node")).source_for::<Cluster>(file);
    let client = Client::builder(bootstrap.build().unwrap()).max_message_size(1000).build().unwrap();
    let mut watch = client.watch::<Cluster>("shop");
    until(&mut watch, "one").await;
    rename_over(&path, &shop(&"x".repeat(1000)));
    let seen = warned(&mut watch, Code::ResourceExhausted).await;
    assert_eq!(note(&seen), Some("one"));
    let error = seen.error().unwrap().to_string();
    assert!(error.contains("over the limit of 1000 bytes (setting max_message_size)"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_device_in_the_place_of_the_file_is_unavailable_and_the_last_good_stays() {
    let (_dir, path) = in_dir("clusters.json");
    fs::write(&path, shop("one")).unwrap();
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    until(&mut watch, "one").await;
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let seen = warned(&mut watch, Code::Unavailable).await;
    assert_eq!(note(&seen), Some("one"));
    assert!(seen.error().unwrap().to_string().contains("it is not a regular file"), "{seen:?}");
}

#[tokio::test]
async fn d1_a_file_and_its_directory_may_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some").join("where").join("clusters.json");
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    let seen = warned(&mut watch, Code::Unavailable).await;
    let error = seen.error().unwrap().to_string();
    assert!(error.contains(&format!("cannot read {}", path.display())), "{error}");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, shop("one")).unwrap();
    until(&mut watch, "one").await;
}

#[tokio::test]
async fn d7_what_cannot_be_used_is_an_error_and_never_an_empty_update() {
    for name in ["clusters.json", "clusters.yaml", "clusters.pb", "clusters.pb_text"] {
        let (_dir, path) = in_dir(name);
        // JSON is YAML, too.
        let good = (!name.contains("pb")).then(|| shop("one"));
        fs::write(&path, good.as_deref().unwrap_or("")).unwrap();
        let client = client(PathSource::new(&path));
        let mut watch = client.watch::<Cluster>("shop");
        let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
        if good.is_some() {
            until(&mut watch, "one").await;
            soon(all.wait_for(|members| members.is_complete())).await.unwrap();
        }
        // The last is what may be left of one that was cut off.
        for bad in ["", "\u{1}garbage", "{", "resources: 3", "version_info: \"2\"\n"] {
            rename_over(&path, bad);
            let seen = warned(&mut watch, Code::InvalidArgument).await;
            assert_eq!(note(&seen), good.as_ref().map(|_| "one"), "{name}: {bad:?}");
            assert!(seen.error().unwrap().to_string().contains(name));
        }
        let members = soon(all.wait_for(|members| members.warning().is_some())).await.unwrap();
        assert_eq!(members.len(), good.iter().count(), "{name}");
    }
}

#[tokio::test]
async fn d7_a_rejected_resource_keeps_its_last_good_one_and_others_go_on() {
    let (_dir, path) = in_dir("clusters.json");
    fs::write(&path, clusters("1", &[("a", "one"), ("b", "one")])).unwrap();
    let client = client(PathSource::new(&path));
    let (mut a, mut b) = (client.watch::<Cluster>("a"), client.watch::<Cluster>("b"));
    until(&mut a, "one").await;
    rename_over(&path, &clusters("2", &[("a", BAD), ("b", "two")]));
    until(&mut b, "two").await;
    let seen = warned(&mut a, Code::InvalidArgument).await;
    assert_eq!(note(&seen), Some("one"));
}

#[tokio::test]
async fn d3_a_watched_directory_reports_files_that_are_moved_there() {
    let (dir, path) = in_dir("clusters.json");
    fs::write(&path, shop("one")).unwrap();
    let file = PathSource::new(&path).with_watched_directory(dir.path());
    let client = client(file);
    let mut watch = client.watch::<Cluster>("shop");
    until(&mut watch, "one").await;
    fs::write(&path, shop("in place")).unwrap();
    // Another file that is moved there calls for it to be read.
    rename_over(&dir.path().join("other.json"), "");
    until(&mut watch, "in place").await;
}

#[cfg(unix)]
#[tokio::test]
async fn d3_kubernetes_swaps_are_seen_with_and_without_a_watched_directory() {
    use std::os::unix::fs::symlink;
    for watched in [true, false] {
        let (dir, path) = in_dir("clusters.json");
        let version = |number: u32, content: &str| {
            let version = dir.path().join(format!("..{number}"));
            fs::create_dir(&version).unwrap();
            fs::write(version.join("clusters.json"), content).unwrap();
            symlink(format!("..{number}"), dir.path().join("..data_tmp")).unwrap();
            fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        };
        version(1, &shop("one"));
        symlink("..data/clusters.json", &path).unwrap();
        let mut file = PathSource::new(&path);
        if watched {
            file = file.with_watched_directory(dir.path());
        }
        let mut watch = client(file).watch::<Cluster>("shop");
        until(&mut watch, "one").await;
        version(2, &shop("two"));
        fs::remove_dir_all(dir.path().join("..1")).unwrap();
        until(&mut watch, "two").await;
        version(3, "{");
        let seen = warned(&mut watch, Code::InvalidArgument).await;
        assert_eq!(note(&seen), Some("two"));
        version(4, &shop("four"));
        until(&mut watch, "four").await;
    }
}

#[tokio::test]
async fn d9_a_list_of_inline_entries_is_as_good_as_a_response() {
    let (_dir, path) = in_dir("clusters.yaml");
    let list = |entry: &str| {
        format!(
            "version: \"7\"\nresource:\n  \"@type\": type.googleapis.com/envoy.config.cluster.v3.ClusterCollection\n  \
             entries:\n  - {entry}\n"
        )
    };
    let inline = "inline_entry: {name: shop, version: \"8\", resource: {\"@type\": \
                  type.googleapis.com/envoy.config.cluster.v3.Cluster, name: shop, eds_cluster_config: {service_name: one}}}";
    fs::write(&path, list(inline)).unwrap();
    let client = client(PathSource::new(&path));
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let members = soon(all.wait_for(|members| members.is_complete())).await.unwrap();
    let one = members.get("shop").unwrap();
    assert_eq!((note(one), version(one)), (Some("one"), Some("8")));
    rename_over(&path, &list("locator: {id: shop, resource_type: envoy.config.cluster.v3.Cluster}"));
    let members = soon(all.wait_for(|members| members.warning().is_some())).await.unwrap();
    let warning = members.warning().unwrap().to_string();
    assert!(warning.contains("resource.entries[0].locator"), "{warning}");
    assert_eq!(members.len(), 1);
}

#[tokio::test]
async fn d8_what_is_not_in_the_file_does_not_exist_without_waiting() {
    let (_dir, path) = in_dir("clusters.json");
    fs::write(&path, shop("one")).unwrap();
    let client = client(PathSource::new(&path));
    let reason = soon(client.watch::<Cluster>("cart").ready()).await.unwrap_err();
    assert_eq!(reason.code(), Code::NotFound);
    assert!(reason.to_string().contains("clusters.json does not hold it"), "{reason}");
    let mut shop = client.watch::<Cluster>("shop");
    until(&mut shop, "one").await;
    rename_over(&path, &clusters("2", &[("cart", "one")]));
    let seen = warned(&mut shop, Code::NotFound).await;
    assert!(seen.error().unwrap().to_string().contains("clusters.json does not hold it any more"));
    let reason = soon(client.watch::<ClusterLoadAssignment>("cart").ready()).await.unwrap_err();
    assert_eq!(reason.code(), Code::FailedPrecondition, "no source of that type");
}

#[tokio::test]
async fn d8_nothing_is_absent_before_the_file_is_read() {
    let (_dir, path) = in_dir("clusters.json");
    // It has to be quiet for longer than the client would wait for a server.
    fs::write(&path, shop("one")).unwrap();
    let bootstrap =
        Bootstrap::builder().node(Node::new("test-node")).source_for::<Cluster>(PathSource::new(path));
    let impatient = Client::builder(bootstrap.build().unwrap()).resource_timeout(Duration::from_millis(1));
    let mut watch = impatient.build().unwrap().watch::<Cluster>("shop");
    assert_eq!(soon(watch.ready()).await.unwrap().note, "one");
}

#[tokio::test]
async fn v2_types_are_those_of_older_files() {
    let (_dir, path) = in_dir("clusters.yaml");
    let old = "version_info: \"0\"\nresources:\n- \"@type\": type.googleapis.com/envoy.api.v2.Cluster\n  name: shop\n  \
               eds_cluster_config: {service_name: one}\n";
    fs::write(&path, old).unwrap();
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    until(&mut watch, "one").await;
}

#[tokio::test]
async fn a_file_of_another_type_is_an_error_that_names_both() {
    let (_dir, path) = in_dir("clusters.json");
    let listener = json!({ "resources": [{ "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l" }] });
    fs::write(&path, listener.to_string()).unwrap();
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    let seen = warned(&mut watch, Code::InvalidArgument).await;
    let error = seen.error().unwrap().to_string();
    assert!(error.contains("resources[0]: it is of the type envoy.config.listener.v3.Listener"), "{error}");
}

/// Writes cut anywhere, renames, deletions and swapped links, too fast to follow; now and then it is quiet.
#[cfg(unix)]
#[tokio::test]
async fn ten_thousand_changes_end_with_the_last_whole_content() {
    let (dir, path) = in_dir("clusters.json");
    let mut random = fastrand::Rng::with_seed(1);
    fs::write(&path, shop("0")).unwrap();
    let mut watch = client(PathSource::new(&path)).watch::<Cluster>("shop");
    until(&mut watch, "0").await;
    let (mut quiet_whole, mut quiet_broken) = (0, 0);
    for operation in 1..=10_000_u32 {
        let text = operation.to_string();
        let whole = shop(&text);
        let is_cut = random.u8(..4) == 0;
        let content = if is_cut { &whole[..random.usize(..whole.len())] } else { &whole };
        change(dir.path(), &path, content, &mut random).await;
        if operation % 250 != 0 {
            continue;
        }
        if fs::read_to_string(&path).is_ok_and(|now| now == whole) {
            quiet_whole += 1;
        } else {
            let seen = soon(watch.wait_for(|seen| seen.error().is_some())).await.unwrap();
            assert!(note(&seen).is_some(), "the last good one stays");
            rename_over(&path, &whole);
            quiet_broken += 1;
        }
        until(&mut watch, &text).await;
    }
    assert!(quiet_whole > 0 && quiet_broken > 0);
}

#[cfg(unix)]
async fn change(dir: &Path, path: &Path, content: &str, random: &mut fastrand::Rng) {
    match random.u8(..6) {
        0 => drop(fs::remove_file(path)),
        1 => rename_over(path, content),
        2 | 3 => {
            // In place, whatever is there, in two parts.
            let middle = random.usize(..=content.len());
            fs::write(path, &content[..middle]).unwrap();
            tokio::task::yield_now().await;
            fs::write(path, content).unwrap();
        }
        _ => {
            let target = dir.join(format!("target{}", random.u8(..5)));
            fs::write(&target, content).unwrap();
            let link = dir.join("link");
            std::os::unix::fs::symlink(&target, &link).unwrap();
            fs::rename(&link, path).unwrap();
        }
    }
}
