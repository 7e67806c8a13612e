#!/usr/bin/env bash
# Each rule id in a comment or in the name of a function has one row in docs/spec/RULES.md, and each row there has a mention. From
# the project's root: .ci/check_rule_ids.sh
#
# An id in a comment is a group's prefix of one or two capital letters and a number:
#
#   B1.8 B6           groups of the xDS protocol: B, the section, and mostly a number in it
#   CH3.16            the channel: CH, the section, and a number in it
#   LR2.4             load reports: LR, the section, and a number in it
#   SV3.5             servers: SV, the section, and a number in it
#   A27-7             requirements of a gRFC; a gRFC alone, such as A27, is no id
#   C5 RP1 X20        all others
#   (R10 to R27)      all of them; the range may go on in the next line
#
# No ids: what stands in `backticks` or in a fenced block, what is part of a longer word, a number with a fraction, a path or a
# link, the xDS proposals (TP1), and the words listed as $word below. So a word that only looks like an id is written in backticks.
#
# A function has its ids in front, in lower case, with underscores for other characters: b1_8_, ch3_16_, lr2_4_, a27_7_, c5_, or several of
# them, x12_x13_. Code and text literals are not looked at.
set -euo pipefail
[ -f src/lib.rs ] || { echo "no src/lib.rs here" >&2; exit 1; }
[ -f docs/spec/RULES.md ] || { echo "no docs/spec/RULES.md here" >&2; exit 1; }

mapfile -d '' files < <(find src crates tests examples benches fuzz \( -name target -o -name corpus \) -prune -o -name '*.rs' -type f -print0 2>/dev/null | sort -z)

exec perl -e '
use strict;
use warnings;

my $word = qr/V[23]|RE2|[UI](?:8|16|32|64)|F(?:32|64)/; # versions of the protocol, a library, types of numbers
my $id = qr/A\d+-\d+|B\d\.\d+|(?:CH|LR|SV)\d+\.\d+|[A-Z]{1,2}\d{1,2}/;
my ($table, @files) = @ARGV;
my ($bad, %row, %mentioned) = (0);

open my $in, "<", $table or die "$table: $!\n";
while (<$in>) {
  next unless /^\| ($id) \|/;
  my $name = $1;
  complain("$table:$.: $name has two rows, the other in line $row{$name}") if $row{$name};
  complain("$table:$.: $name needs a rule and a source") unless /^\| \S+ \| \S[^|]{9,} \| \S[^|]* \|$/;
  $row{$name} //= $.;
}
close $in;

for my $file (@files) {
  my $text = slurp($file);
  my $comments = comments($text);
  while ($comments =~ /(?<![\w.\/#-])($id)(?![\w\/-]|\.\d)/g) {
    my ($first, $at, $end) = ($1, $-[1], $+[1]);
    mention($file, $text, $at, $_) for $first, range($first, substr($comments, $end, 300));
  }
  while ($text =~ /\bfn ([a-z]\w*)/g) {
    my ($name, $at) = ($1, $-[1]);
    while ($name =~ s/^(a\d+_\d+|b\d_\d+|(?:ch|lr|sv)\d+_\d+|[a-z]{1,2}\d{1,2})_//) {
      mention($file, $text, $at, uc($1) =~ s/^(A\d+)_/$1-/r =~ s/^(B\d|CH\d+|LR\d+|SV\d+)_/$1./r);
    }
  }
}
complain("$table:$row{$_}: nothing mentions $_") for grep { !$mentioned{$_} } sort { $row{$a} <=> $row{$b} } keys %row;
printf "%d files, %d rules, each with a row and a mention\n", scalar(@files), scalar(keys %row) unless $bad;
exit($bad ? 1 : 0);

# What lies between the ends of a range, and its last id.
sub range {
  my ($first, $rest) = @_;
  return unless $rest =~ /^[ ]*\n?[ ]*to[ ]*\n?[ ]*($id)(?![\w-]|\.\d)/;
  my $last = $1;
  my ($prefix, $from) = $first =~ /^(.*?)(\d+)$/;
  return unless $last =~ /^\Q$prefix\E(\d+)$/ && $1 > $from;
  return map { "$prefix$_" } $from + 1 .. $1;
}

sub mention {
  my ($file, $text, $at, $id) = @_;
  return if $id =~ /^(?:A\d+|TP\d|$word)$/;
  $mentioned{$id} = 1;
  return if $row{$id};
  my $line = 1 + (substr($text, 0, $at) =~ tr/\n//);
  complain("$file:$line: $id has no row in $table");
}

# The comments, in their places, with blanks for their marks, for code, and for what is quoted.
sub comments {
  my ($text) = @_;
  my ($found, $end) = ("", 0);
  while ($text =~ m{(//[^\n]*|/\*.*?\*/)|\bb?r(\#*)".*?"\2|"(?:\\.|[^"\\])*"|\x27(?:\\[^\x27]+|[^\x27\\])\x27}gs) {
    my ($comment, $from, $to) = ($1, $-[0], $+[0]);
    $found .= blank(substr($text, $end, $from - $end));
    $found .= defined $comment ? $comment =~ s{^//[/!]?|^/\*|\*/$}{" " x length($&)}egr : blank(substr($text, $from, $to - $from));
    $end = $to;
  }
  $found .= blank(substr($text, $end));
  $found =~ s{^[ ]*```.*?^[ ]*```}{blank($&)}egms;
  $found =~ s{`[^`\n]*`}{blank($&)}eg;
  return $found;
}

sub blank {
  return shift =~ s/[^\n]/ /gr;
}

sub slurp {
  my ($file) = @_;
  open my $in, "<", $file or die "$file: $!\n";
  local $/;
  return scalar <$in>;
}

sub complain {
  print STDERR "@_\n";
  $bad = 1;
}
' docs/spec/RULES.md "${files[@]}"
