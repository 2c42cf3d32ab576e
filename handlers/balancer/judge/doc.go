// Package judge holds a second cluster in virtual time, by which v5 is judged beside v4.
//
// Package plant came first, and v5 was made while looking at it: a fault of the model would
// be a fault of both. The cluster here shares no code with it and differs in what it takes
// for granted: caches may warm by the clock or by what is served, overloaded workers may let
// work wait, weights may be counted in other units than requests or leave out what was
// dropped, reports may be a step old or leave partitions out, and steps last from one second
// to a minute. Scenarios are drawn by number, 22 kinds in turn, so that nobody has chosen
// them; tune with some numbers, and judge with others that nobody has looked at.
//
// There are only tests: a few scenarios run with them, and make judge runs hundreds.
package judge
