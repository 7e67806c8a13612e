// Command regexes answers what Go's package regexp, which has the syntax of RE2, says of patterns.
//
// A line of standard input is {"pattern": "a+", "texts": ["a", "b"]}. The line of standard output for it is {"matches": [true, false]},
// whether the pattern matches each text as a whole, or {"error": "…"} for a pattern that is no regular expression. With the argument
// "properties" it prints the names of categories and scripts instead, as a list.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"unicode"
)

type question struct {
	Pattern string   `json:"pattern"`
	Texts   []string `json:"texts"`
}

type answer struct {
	Matches []bool `json:"matches,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == "properties" {
		if err := json.NewEncoder(os.Stdout).Encode(properties()); err != nil {
			log.Fatal(err)
		}
		return
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	buffered := bufio.NewWriter(os.Stdout)
	out := json.NewEncoder(buffered)
	for {
		var asked question
		if err := in.Decode(&asked); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(ask(asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := buffered.Flush(); err != nil {
		log.Fatal(err)
	}
}

func properties() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts} {
			for name := range tables {
				if !yield(name) {
					return
				}
			}
		}
	})
}

func ask(asked question) answer {
	compiled, err := regexp.Compile(asked.Pattern)
	if err != nil {
		return answer{Error: err.Error()}
	}
	// The match that begins first, and is the longest of these: the whole text, if that matches. So gRPC-Go does it.
	compiled.Longest()
	matches := make([]bool, len(asked.Texts))
	for index, text := range asked.Texts {
		place := compiled.FindStringIndex(text)
		matches[index] = place != nil && place[0] == 0 && place[1] == len(text)
	}
	return answer{Matches: matches}
}
