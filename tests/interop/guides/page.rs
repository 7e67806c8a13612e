//! The commands of a page, as a reader would paste them.

use std::{fs, path::Path};

/// A command of a page, with the output that the page shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Command {
    pub(super) line: String,
    /// Without one, the page shows none.
    pub(super) output: Option<String>,
}

/// A page of `docs/guides`.
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    pub(super) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides").join(name);
        Self { text: fs::read_to_string(path).expect("the page is there") }
    }

    /// The blocks of a language.
    pub(super) fn blocks(&self, language: &str) -> Vec<&str> {
        let fence = format!("\n```{language}\n");
        let blocks = self.text.split(&*fence).skip(1);
        blocks.map(|rest| rest.split_once("\n```").map_or(rest, |(block, _)| block)).collect()
    }

    /// The commands of all console blocks, in order.
    pub(super) fn commands(&self) -> Vec<Command> {
        self.blocks("console").into_iter().flat_map(commands).collect()
    }
}

/// The commands of a block: lines that begin with `$ `, with the rest of a document (`<<'.'`) or of a line that ends with `\`.
fn commands(block: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        let Some(line) = line.strip_prefix("$ ") else {
            let last = commands.last_mut().expect("a block begins with a command");
            let output = last.output.get_or_insert_default();
            *output += &format!("{line}\n");
            continue;
        };
        let mut command = line.to_owned();
        let is_document = command.ends_with("<<'.'");
        while is_document && !command.ends_with("\n.") || command.ends_with('\\') {
            command += &format!("\n{}", lines.next().expect("the rest of the command"));
        }
        commands.push(Command { line: command, output: None });
    }
    commands
}

#[test]
fn commands_are_read_with_their_output() {
    let page = Page {
        text: "x\n```console\n$ cat > a <<'.'\n{}\n.\n$ b \\\n  c\none\ntwo\n```\n\n```json\n{}\n```\n\n```console\n$ d\n```\n".to_owned(),
    };
    let command = |line: &str, output: Option<&str>| Command {
        line: line.to_owned(),
        output: output.map(str::to_owned),
    };
    let expected =
        [command("cat > a <<'.'\n{}\n.", None), command("b \\\n  c", Some("one\ntwo\n")), command("d", None)];
    assert_eq!(page.commands(), expected);
    assert_eq!(page.blocks("json"), ["{}"]);
}
