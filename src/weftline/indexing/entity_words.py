"""Word lists for the extraction of entities, in lower case and without accents unless said otherwise."""

from __future__ import annotations


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


GIVEN_NAMES = _words(
    """
    aaliyah aaron abdul abigail abraham ada adaeze adam addison adele adrian adriana agnes ahmad ahmed aidan aiko aisha
    akira alan alana alba albert alberto alejandra alejandro alessandra alessandro alex alexander alexandra alexei
    alexis alfonso alfred ali alice alicia alina alisa alison allison alma alonso alvaro alyssa amanda amara amber
    amelia amina amir amit amy ana anastasia andrea andreas andrei andrew angela angelina anika anita anja anjali ann
    anna annabelle anne annette annika anthony antoine anton antonia antonio anya arash archie ariana arjun armin arnold
    arthur arturo arun asha ashley astrid aurora austin ava axel ayesha ayumi barbara bastian beatrice beatriz ben
    benedict benjamin bernard bernd bertha beth bethany bettina bianca bilal birgit bjorn bob boris brad bradley brandon
    brenda brendan brent brett brian bridget britta brittany bruce bruno bryan byron caleb calvin camila camille carina
    carl carla carlos carmen carol carolina caroline carolyn carsten catalina catherine cathy cecilia cedric celine
    cesar chad chandra charles charlie charlotte chelsea cheryl chiara chloe chris christa christian christina christine
    christoph christopher ciara cindy claire clara claudia claus clemens colin connor corinna courtney craig cristina
    curtis cynthia dagmar daisy damian dan dana daniel daniela danielle danny daria dario darren dave david davide
    deborah debra deepak deepika delia denis denise dennis derek devon diana diego dieter dilip dimitri dirk divya
    dmitri dolores dominic dominik donald donna dora doris dorothy doug douglas dustin dylan eduardo edward edwin eileen
    ekaterina elaine eleanor elena eleni elias elif elijah elisa elisabeth elise eliza elizabeth ella ellen elliot elsa
    elvira emil emilia emilio emily emma emmanuel enrico enrique eric erica erich erik erika ernesto ernst esra esteban
    estelle esther ethan eugene eva evan evelyn fabian fabio farah fatima federica federico felicia felipe felix
    fernanda fernando fiona flora florian frances francesca francesco francis francisco francois franz fred frederick
    frederik frieda fritz gabriel gabriela gabriele gareth gavin gemma geoffrey georg george georgia gerald gerard
    gerhard gina giorgio giovanni gisela giulia giuseppe gloria gonzalo gordon grazia greg gregor gregory greta guido
    guillermo gunther gustavo hadi haley hamza hanna hannah hans harald haris harriet harry haruka haruki hassan heather
    hector heidi heike heinrich heinz helen helena helene helga henri henrik henry herbert hermann hilary hildegard
    hiroshi holger howard hubert hugo hussein ian ibrahim igor ilaria ines ingo ingrid irene irina iris isaac isabel
    isabella isabelle ismail ivan ivana jacob jacqueline jacques jaime jake jakob jamal james jamie jan jana jane janet
    janice janina jared jasmin jasmine jason javier jean jeff jeffrey jelena jenna jennifer jenny jens jeremy jerome
    jerry jesse jessica jill jim jimmy jin joachim joan joana joanna joao jochen jody joe joel joerg johan johann
    johanna johannes john jonas jonathan jordan jorge jose josef joseph josephine josh joshua juan juana judith judy
    julia julian juliana julie juliet julio jung jurgen justin justine kamal karen karim karin karina karl karla kasper
    kate katharina katherine kathleen kathrin kathryn kathy katia katie katja katrin kavya kayla keiko keisha keith
    kelly ken kenji kenneth kenya kevin khalid kim kimberly kirsten klara klaus konstantin krishna kristen kristin
    kristina kumar kurt kyle lakshmi lara larissa larry lars latoya laura lauren laurence laurent lea leah leila lena
    leo leon leonard leonardo leonie leroy leslie leticia levi lewis liam lidia lila lilian liliana lina linda lindsay
    linus lisa livia liz lorena lorenzo lori louis louisa louise luca lucas lucia luciana lucy ludwig luigi luis luisa
    lukas luke luna lydia mackenzie madeleine madison maja malik mamadou manfred manuel manuela mara marc marcel marcela
    marcelo marco marcos marcus margaret margarita maria mariam mariana marie marina mario marion marisa marissa marius
    marlene marta martha martin martina marvin mary mateo mathias mathilda matt matteo matthew matthias maureen maurice
    mauricio maxime maximilian maya megan mehmet mei melanie melina melissa mercedes mia micah michael michal michel
    michelle miguel mikael mike mikhail milan milena miles mina mira miranda miriam mitchell mohamed mohammad mohammed
    moira molly mona monica monika monique morgan moritz moses muhammad murat mustafa myra nadia nadine naomi natalia
    natalie natasha nathalie nathan nathaniel neha neil nelson nia niamh nicholas nicola nicolas nicole niels nigel
    nikhil nikita niklas nikola nikolai nina noah noel noemi nora norbert norma norman nuria oleg olga oliver olivia
    omar oscar oskar otto owen pablo paige pamela paola paolo parisa pascal patricia patrick paul paula pauline pavel
    pedro penelope per peter petra philip philipp philippe phillip phoebe pia pierre pietro pilar poppy pradeep pranav
    priya priyanka rachel rafael raj rajesh ralf ralph ramon randy raphael raquel rashid raul ravi rebecca regina
    reinhard renate renee ricardo richard rita rob robert roberta roberto robin rodrigo roger rohan roland roman ron
    ronald rosa rosalind rosemary ross roy ruben rudolf rupert russell ruth ryan sabine sabrina salma sam samantha samir
    samuel sandeep sandra sanjay santiago sara sarah sasha saskia scott sean sebastian selena selina serena sergei
    sergio seth shannon sharon shaun sheila shirley shreya sidney siegfried sigrid silke silvia simon simona simone
    sofia solomon sonia sonja sophia sophie soren stacy stanley stefan stefanie stefano stella stephan stephanie stephen
    steve steven stuart sunil susan susanna susanne suzanne sven svenja svetlana sylvia takashi tamara tanja tanya tara
    tariq tatiana ted teresa terry thea theo theodore theresa thomas thorsten tiago tiffany tim timothy tina tobias todd
    tom tomas tommy toni tony torsten tracy travis trevor tricia trisha tyler udo ulrich ulrike umar ursula ute uwe
    vadim valentina valerie vanessa vera veronica veronika vicky victor victoria vijay vikram viktor vincent vincenzo
    violet virginia vivek vivian vladimir volker waldemar walter wanda wayne wendy werner wesley wilfried wilhelm
    william willie wolfgang xavier xiao xin yan yannick yara yasmin yasmine yoko yolanda yosef youssef yuki yuri yusuf
    yvette yvonne zachary zahra zara zeynep zoe zoey
    """
)
# Given names that are words as well: they need more evidence.
AMBIGUOUS_NAMES = _words(
    """
    amber angel april art august austin autumn bill brook carter chance charlotte chase chip christian coral crystal
    daisy dawn dean destiny drew earl faith florence frank gene georgia ginger grace grant guy harmony heather holly
    hope hunter iris ivy jack jasmine jordan joy june kay kenya lance lily madison mark mason max may melody mercedes
    miles noel norm nova olive paris parker pat pearl penny per ray regina rich robin rose ruby savannah sky star
    sterling sue summer sydney trinity victoria violet virginia wade ward will willow
    """
)
# Of these, those that are hardly ever names, even before another capitalised word.
RARE_NAMES = _words(
    """
    amber art chance chip coral crystal gene guy hunter may norm nova olive pearl per rich ruby sky star sterling summer
    trinity violet ward
    """
)
TITLES = _words(
    """
    captain doctor dr fr frau herr hr judge lady lord madam madame miss mme monsieur mr mrs ms mx president prof
    professor senator señor señora signor signora sir
    """
)
PARTICLES = _words(
    """
    al bin da de del della den der di dos du el ibn la le ter van von y zu zur
    """
)
PERSON_VERBS = _words(
    """
    admitted agreed agrees answered antwortete argued asked asks believes called complained confirmed confirms decided
    dijo dit emailed explained explains forgot fragt fragte hates insisted joked knows likes loves meint meinte
    mentioned mentions noted prefers promised proposed proposes recommended recommends remembers replied replies sagt
    sagte said says schrieb suggested suggests tells texted thinks thought told wanted wants writes wrote
    """
)
SPEECH_VERBS = _words(
    """
    emailed replied said says texted thinks told wrote
    """
)
# In front of a name: "ask Keiko", "thanks Bo", "assigned to Nkechi".
PERSON_CUES = _words(
    """
    according ask asked assignee author boss brother cc colleague contact coworker danke daughter dear father friend
    hallo hello hey hi husband liebe lieber manager meet meeting met mother owner partner ping reviewer sister son tell
    thank thanks told wife
    """
)
DETERMINERS = _words(
    """
    a an any each every her his its my no our some that the their these this those your
    """
)
# Capitalised at the start of sentences and in headings, but no names.
COMMON_WORDS = _words(
    """
    absolutely according actually add additional all also although always answer anyone anything apparently apply april
    ask assume august available based basically because besides both build call case change channels chapter check child
    children click client close code commit committee company compare config configuration congratulations consider
    contact context could create critics current customer customers data date day dear december decision default define
    delete depending deploy describe design designer details developers did discuss doctors document done each either
    email engineers english error even event every everybody everyone everything evidence exactly example experts
    extract fact feature february figure figures file files final finally finance find first fix following for
    frequently friday from full function general generally german get give given go god good got government great guys
    half happy hello help here hey hi however if implement important in information input inside instead internet issue
    it january job july june just keep key kids last later latest let like list load look lunch make management manager
    many march maybe me meanwhile meeting members merge message minister monday more most move mr ms much my name new
    next nice nobody none not note nothing november now october of officials oh ok okay old once one only open option
    options or original other others otherwise our output over overall page parents part people perfect perhaps phase
    plan please point police possible prepare president previous price prime probably problem process product production
    program project provide pull put question quick read ready really reason recently recorder release remember remove
    replace reply report request research researchers reset result results return review right rule run same saturday
    save schedule scientists search second secretary section see send september server service session set several she
    show similar simply since so some someone something sometimes soon sorry source sources speaker start state status
    step still stop students studies subject such summary sunday support sure system table take talk task teachers team
    tell test thank thanks that the their then there these they thing things think third this those though three
    thursday thus time title today together tomorrow tonight too total track try tuesday two type understand
    unfortunately until update use user users using value verify version very vice wait want warning was we wednesday
    week welcome well were what when where whether which while who whole whose why will with within without word work
    world would write wrong yeah year yes yesterday yet you your
    """
)
# Technologies, languages, places: capitalised in the middle of sentences.
NOT_PEOPLE = _words(
    """
    ai amazon america android angular apache apple arabic asia atlantic aws azure bank bash berlin bitcoin boston brazil
    britain california canada chicago china chinese christmas cloud css dallas delhi django docker dutch easter email
    england europe european excel facebook firefox flask france french gemini germany git github gitlab gmail go golang
    google gradle grafana haskell html http hungary india intel internet ios italian italy japan japanese java
    javascript jenkins jira json kafka korea kotlin kubernetes lambda linux london mac mexico microsoft mongo munich
    mysql nasa netflix nginx node npm openai oracle pandas paris perl php playwright portland portuguese postgres
    postgresql prometheus pytest python pytorch rails react redis rho rome rspec russia russian rust safari scala
    seattle shell siri slack spain spanish spark sql sqlite swift switzerland sydney terraform tesla texas tokyo toronto
    turkey twitter typescript uber ubuntu unix vienna vim vue wikipedia windows xcode yaml york zoom zurich
    """
)
# After a capitalised word: a place or an organisation, not a surname.
NOT_SURNAMES = _words(
    """
    academy airport association avenue bank bay beach board boulevard bridge building canyon castle center centre church
    city club college committee company conference corp corporation council county department district falls festival
    forest foundation fund gallery garden group hall harbor hill hospital hotel house inc institute island lake lane
    library limited llc ltd market memorial mountain mountains museum ocean office park party peninsula plaza port prize
    project republic river road school science sea society springs square stadium station store street studio team
    temple theatre tower union university valley village zoo
    """
)
PROJECT_WORDS = _words(
    """
    codename codenamed progetto project projekt projet proyecto
    """
)
NOT_PROJECTS = _words(
    """
    board brief budget charter deadline deadlines deliverables description details documentation files folder goal goals
    has id ids is kickoff lead leader leads management manager meeting member members milestones must name names needs
    overview owner owners phase phases plan planning plans proposal report reports requirements requires review reviews
    root scope settings setup should status structure summary team teams timeline update updates was will
    """
)
# Speakers that identify nobody.
ROLES = _words(
    """
    agent ai assistant bot customer developer function human model speaker system tool user
    """
)
DECORATORS = _words(
    """
    all author channel classmethod dataclass deprecated everyone here import media override param property pytest return
    returns see since staticmethod test throws todo
    """
)
NOT_TICKETS = _words(
    """
    AES AM BERT BM CD CLASS CLAUDE CO COVID DDR GMT GPT HAIKU HTTP IPV ISO LEVEL LLAMA MD MP OPUS PART PHASE PM RSA SHA
    SONNET SSL STEP TLS TOP USB UTC UTF
    """
)
BRANDS = _words(
    """
    airbnb airpods bigquery bitbucket chatgpt clickhouse cockroachdb deepmind deepseek devops doordash dropbox ebay
    facebook fedex github gitlab graphql hubspot huggingface icloud imessage ipad iphone javascript latex linkedin
    macbook mastercard mmhg mongodb mysql netflix onedrive openai pagerduty paypal playstation postgresql powerpoint
    powerpoints pubmed quickbooks salesforce servicenow sharepoint sqlite stackoverflow tiktok typescript whatsapp
    wordpress youtube
    """
)
EXTENSIONS = _words(
    """
    avi bash bat bin bmp c cc cfg class clj cmake conf config cpp cs css csv cu dart db diff doc docx dylib env eps erb
    ex exe exs flac fs gif go gradle graphql gz h hcl hpp hs htm html ico iml ini ipynb jar java jl jpeg jpg js json
    jsonl jsx key kt kts less lock log lua m md mdx mkv mm mov mp3 mp4 npy npz odt ogg onnx otf out parquet patch pdf
    pem php pkl pl png ppt pptx properties proto ps1 pth py pyi pyx r rb rs rst rtf scala scss sh so sql sqlite sqlite3
    srt svg swift tar tex tf tgz toml ts tsv tsx ttf txt vue wasm wav webm webp whl xls xlsx xml yaml yml zip zsh
    """
)
# Single letters and words only count as an extension within a path.
RISKY_EXTENSIONS = _words(
    """
    bin c class config env ex fs go h key m out pl r so
    """
)
LIBRARIES = _words(
    """
    angular.js asp.net backbone.js chart.js d3.js deno.js ember.js express.js moment.js next.js node.js nuxt.js react.js
    require.js socket.io three.js vue.js
    """
)
PLAIN_FILES = _words(
    """
    cargo.lock dockerfile gemfile go.mod go.sum jenkinsfile justfile makefile procfile rakefile vagrantfile
    """
)
# First folders of paths.
ROOTS = _words(
    """
    api app apps assets benchmarks bin build cmd config core data dist docs etc evals examples home include internal lib
    node_modules opt packages pkg public scripts src static test tests tmp tools usr var
    """
)
DOT_FILES = _words(
    """
    .bashrc .dockerignore .editorconfig .env .env.local .eslintrc .flake8 .gitattributes .gitignore .gitmodules
    .htaccess .npmrc .prettierrc .profile .pylintrc .vimrc .zshrc
    """
)
TOP_DOMAINS = _words(
    """
    ai app at biz ch co com de dev edu eu fr gov info io net nl org uk
    """
)
