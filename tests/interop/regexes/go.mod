module regexes

go 1.23
