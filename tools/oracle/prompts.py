"""Prompts of the committed references: (kind, text or messages). Kinds: plain text, chat."""


def ledger(lines):
    """A long text that repeats its form and not its content."""
    goods = [
        "lamp oil",
        "rope",
        "salted cod",
        "barley",
        "nails",
        "sailcloth",
        "candles",
        "pitch",
        "oak planks",
    ]
    ports = ["Bergen", "Riga", "Hull", "Porto", "Genoa", "Izmir", "Tunis"]
    rows = []
    for i in range(lines):
        count = (i * 7919 + 13) % 90 + 10
        rows.append(
            f"{i + 1}. {count} crates of {goods[i * 5 % 9]} from {ports[i * 3 % 7]}, "
            "paid in silver."
        )
    return (
        "The harbour master's ledger reads:\n" + "\n".join(rows) + "\nIn total the harbour received"
    )


def user(text):
    return [{"role": "user", "content": text}]


CHAT = [
    user("What is the capital of France?"),
    user("Explain why the sky looks blue, in two sentences."),
    user("Write a Python function that reverses a list in place."),
    user("List five fruits that grow on trees."),
    user("Translate 'good morning, my friend' into Spanish."),
    user("How many days are there in a leap year, and why?"),
    user("Give me a name for a bakery that only opens at night."),
    user("What is 17 times 23? Show the steps."),
    user(
        "Summarise in one line: The river rose after three days of rain, the bridge was closed, "
        "and the "
        "villagers crossed by boat until Sunday."
    ),
    user("Qu'est-ce qu'une baleine mange ?"),
    user("Was ist der Unterschied zwischen Wetter und Klima?"),
    user("水はなぜ凍るのですか？"),
    user("Напиши короткое стихотворение о снеге."),
    user("اذكر ثلاث مدن كبيرة."),
    user("Fix this sentence: him and me was going too the market yesterday"),
    user("Turn this into JSON: name Ada, age 36, city London"),
    user("Why do cats purr? 🐈"),
    user("Write a haiku about a slow computer."),
    user("Sort these numbers from small to large: 42, 7, 19, 3, 88, 21"),
    user("Which is heavier, a kilogram of iron or a kilogram of feathers?"),
    user("Give one argument for and one against living in a big city."),
    user("Write an SQL query that counts orders per customer."),
    user("    Does   spacing   matter\n\n\nto   you?   "),
    user("Repeat exactly: the mill wheel turns (slowly)."),
    [
        {"role": "system", "content": "You answer like a pirate, in one sentence."},
        {"role": "user", "content": "Where is the nearest library?"},
    ],
    [
        {"role": "system", "content": "Answer with a single word."},
        {"role": "user", "content": "What colour is a ripe tomato?"},
    ],
    [
        {"role": "user", "content": "My name is Tomas."},
        {"role": "assistant", "content": "Nice to meet you, Tomas! How can I help?"},
        {"role": "user", "content": "What is my name, spelled backwards?"},
    ],
    [
        {"role": "user", "content": "Think of an animal."},
        {"role": "assistant", "content": "I am thinking of an otter."},
        {"role": "user", "content": "Where does it live?"},
        {"role": "assistant", "content": "Otters live near rivers, lakes and coasts."},
        {"role": "user", "content": "And what does it eat?"},
    ],
    user("Here is a list of goods. " + ledger(12) + " how many crates? Answer briefly."),
    user("Continue the pattern: A1, B2, C3, D4,"),
]

PLAIN = [
    "Once upon a time",
    "The",
    "The three laws of motion state that",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "#include <stdio.h>\n\nint main(void) {\n",
    "Dear Ms. Ito,\n\nThank you for your letter of 3 May. I am writing to",
    "1, 1, 2, 3, 5, 8, 13,",
    "In 1969, two astronauts",
    "Ingredients:\n- 200 g flour\n- 2 eggs\n- 1 pinch of salt\n\nMethod:\n1.",
    "Q: What do bees make?\nA: Honey.\nQ: What do cows give?\nA:",
    "<html>\n<head><title>Timetable</title></head>\n<body>\n",
    "The old lighthouse keeper climbed the stairs for the last time, and when he reached the "
    "top he",
    "El perro corre por el parque y",
    "北京是中国的",
    "It was raining. It was raining. It was raining.",
    '{"id": 17, "tags": ["red", "round"], "size":',
    "🙂🙃🙂🙃",
    "Photosynthesis is the process by which plants use sunlight to turn water and carbon "
    "dioxide into",
    ledger(24),
    ledger(60),
]

# For a base model; the last is longer than its window.
GEMMA = [PLAIN[i] for i in (0, 2, 3, 9, 12, 13, 17)] + [ledger(36)]
