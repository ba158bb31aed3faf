"""The built-in corpus: sentences of a small English and German grammar, without end.

`words` defines what a word is and `lexicon` lists them; `phrases` are values with a text in
both languages and `constructs` make sentences of them; `drawing` chooses at random. The pairs need
what attention is good at: words that move (the German verb goes to the end of a subordinate clause,
its prefix to the end of a main clause), words that agree over a distance, and pronouns that take
the gender of a noun far back.

The English side determines the German side. Where English alone would not, these rules hold:

- "it" stands for the subject of the clause before it if it does or is something that the living can
  do or be (it was too tired), and else for the object (it was too wide); so do "he", "she", "they";
- a noun has one modifier, so that a relative clause or prepositional phrase belongs to the noun
  right before it; no adverb ends a relative clause, or a clause whose object has one;
- the English past is the Präteritum and the present perfect the Perfekt;
- nouns for people have one gender: the doctor is a woman (die Ärztin), the teacher a man (der
  Lehrer).

One in ten combinations of adjective and noun is held out: training sentences never have them, and
every held-out sentence has one.
"""

from attendo.data.builtin.constructs import Sentence
from attendo.data.builtin.drawing import sentences

__all__ = ["Sentence", "sentences"]
