// The weights of search hits: a reader looks for the chapters and notebooks on a subject first.
var Scorer = {
    score: ([page, , , , score]) =>
        score + (/^concepts\//.test(page) ? 6 : /^notebooks\//.test(page) ? 4 : /^[A-Z]|^reference\//.test(page) ? -4 : 0),
    objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0, // Sphinx's own
    title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
