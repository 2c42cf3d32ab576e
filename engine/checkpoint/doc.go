// Package checkpoint has the data of a run that is kept between its steps: the form of a
// checkpoint, its encoding, and the view of a run for people. Package core knows how a run
// continues.
package checkpoint
