#!/usr/bin/env bash
# The core looks inward and down: outside of tests, no file of a core module names a module of the shell or the edge, what the
# crate's root re-exports from one, a crate that does I/O, or a core module that is not on a floor below its own. The simulated
# world, which tests and fuzzing compile, has a server in it. docs/ARCHITECTURE.md has the same table of rings and floors.
# Connections are dialed in one module of the shell.
# From the project's root: .ci/check_rings.sh
set -euo pipefail
[ -f src/lib.rs ] || { echo "no src/lib.rs here" >&2; exit 1; }

# The floors of the core, the lowest first. A module uses those of the lines above its own, and none of its own line.
floors='backoff capacity escape invariant scans wire pb
chunked_slab base redact
error name
observed config
format
resource
protocol control_plane/store
lrs
control_plane/session
cache
resolve
rbac
filters
engine balance serve'
shell='authorization bootstrap client channel server transport dial tls background file_reads control_plane csds channelz metrics orca spiffe codec'
edge='discover fuzzing testing tool_support test_log doc_examples lib'
core=$(tr '\n' ' ' <<<"$floors")

# Every module of src/ is in one ring.
for path in src/*; do
  module=$(basename "$path" .rs)
  case " $core $shell $edge " in
  *" $module "*) ;;
  *) echo "$path: the module is on no floor and in no ring; add it to .ci/check_rings.sh and docs/ARCHITECTURE.md" >&2; exit 1 ;;
  esac
done
export FLOORS=$floors

files=()
for module in $core; do
  [ ! -f "src/$module.rs" ] || files+=("src/$module.rs")
  [ ! -d "src/$module" ] || mapfile -O ${#files[@]} -t files < <(find "src/$module" -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' ! -path 'src/engine/simulation/*' | sort)
done

# Connections are dialed by `dial` alone. The proxy of `testing` has no client, and `channel/mod.rs` shows an application.
dialing=$(grep -rnE '\b(TcpStream|UnixStream)::connect|\bTcpSocket\b' src --include='*.rs' --exclude='tests.rs' --exclude-dir=tests |
  grep -vE '^src/(dial|testing)/|^src/[^:]*:[0-9]+: *//[/!]' || true)
[ -z "$dialing" ] || { printf 'a connection is dialed outside of src/dial:\n%s\n' "$dialing" >&2; exit 1; }

exec perl -e '
use strict;
use warnings;

my $outward = qr/authorization|channel|client|server|transport|dial|tls|spiffe|background|file_reads|csds|channelz|metrics|orca|bootstrap|discover|testing|tool_support/;
my $crates = qr{tokio\w*|tonic\w*|hyper\w*|h2|rustls\w*|x509_cert};

# Names that the root re-exports from outward modules: crate::Client is crate::client::Client.
my %reexported;
my $root = slurp("src/lib.rs");
while ($root =~ /\bpub use (?:crate::|self::)?(?:$outward|control_plane)::([^;]+);/g) {
  $reexported{$_} = 1 for grep { /^[A-Z]/ } $1 =~ /\w+/g;
}

# What floor each core module is on; control_plane/session and store count as one place each.
my %floor;
my $height = 0;
for my $line (split /\n/, $ENV{FLOORS}) {
  $floor{$_} = $height for split / /, $line;
  $height++;
}

my $bad = 0;
for my $file (@ARGV) {
  my $text = slurp($file);
  my @module = split m{/}, $file =~ s{^src/}{}r =~ s{(?:/mod)?\.rs$}{}r;
  while ($text =~ /\b(crate::|(?:super::)+)([\w:]*)(\{?)/g) {
    my ($base, $path, $at, $tree, $end) = ($1, $2, $-[0], $3, $+[3]);
    my $up = () = $base =~ /super/g;
    next if $up > @module;
    my @from = $up ? @module[0 .. $#module - $up] : ();
    for ($tree ? map { "$path$_" } branches(substr($text, $end)) : ($path)) {
      my ($first, $second) = (@from, split(/::/), "", "");
      my $out = $first =~ /^(?:$outward)$/
        || $reexported{$first}
        || ($first eq "control_plane" && ($module[0] ne "control_plane" || $second =~ /^service/));
      complain($file, $text, $at, "outward: $base$_") if $out;
      my ($own, $other) = (place(@module), place($first, $second));
      next if $out || $own eq $other || !defined $floor{$own} || !defined $floor{$other} || $floor{$other} < $floor{$own};
      complain($file, $text, $at, "up, or to its own floor: $base$_");
    }
  }
  complain($file, $text, $-[1], "outward: $1::") while $text =~ /(?<![\w:])($crates)::/g;
}
print scalar(@ARGV), " files of the core, none leads outward or up\n" unless $bad;
exit($bad ? 1 : 0);

# The place of a module in the table of floors.
sub place {
  my ($first, $second) = @_;
  return $first eq "control_plane" ? "$first/" . ($second // "") : $first;
}

# The code without comments, text literals and tests; line numbers stay.
sub slurp {
  my ($file) = @_;
  open my $in, "<", $file or die "$file: $!\n";
  local $/;
  my $text = <$in>;
  my $blank = sub { (my $gone = shift) =~ s/[^\n]//g; $gone };
  $text =~ s{(//[^\n]*|/\*.*?\*/)|(\bb?r(\#+)".*?"\3|"(?:\\.|[^"\\])*"|\x27(?:\\[^\x27]+|[^\x27\\])\x27)}{defined $1 ? $blank->($1) : "\"" . $blank->($2) . "\""}gse;
  $text =~ s{\#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:pub(?:\([\w ]+\))? )?mod \w+ \{.*\z}{$blank->($&)}se;
  $text =~ s{\#\[cfg\(test\)\]\s*[^;\{]*;}{$blank->($&)}gse;
  return $text;
}

# The paths of a use tree, nested braces aside, given what follows its opening brace.
sub branches {
  my ($rest) = @_;
  my ($depth, $branch, @found) = (0, "");
  for my $char (split //, $rest) {
    if ($char eq "{") { $depth++ }
    elsif ($char eq "}") { last if $depth-- == 0 }
    elsif ($char eq "," && $depth == 0) { push @found, $branch; $branch = ""; next }
    $branch .= $char;
  }
  return map { s/\s+//gr =~ s/(?:::)?\{.*//r } grep { /\S/ } @found, $branch;
}

sub complain {
  my ($file, $text, $at, $what) = @_;
  my $line = 1 + (substr($text, 0, $at) =~ tr/\n//);
  print STDERR "$file:$line: a core module leads $what\n";
  $bad = 1;
}
' "${files[@]}"
