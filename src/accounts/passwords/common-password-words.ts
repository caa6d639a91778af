/**
 * Words that common passwords are made of (with digits or signs around them, or as they are), and common passwords that
 * are not words. Lower case, separated by white space. Only what has to be known by heart: runs and repetitions are computed.
 */
export const COMMON_PASSWORD_WORDS = `
password passwort passw0rd passwd passcode passphrase passport password1234 contrasena motdepasse senha parola haslo heslo lozinka wachtwoord
salasana losenord mypassword mypass newpass newpassword nopassword yourpassword thepassword userpassword adminpassword rootpassword defaultpassword
temppassword testpassword oldpassword goodpassword strongpassword letmein letmeinnow openup opensesame sesame changeme changeit changethis changepassword
admin administrator adminadmin root rootroot toor superuser sysadmin operator manager supervisor master masterkey guest user username login logon signin
welcome welcomehome default secret secrets topsecret supersecret mysecret private public test tester testing testtest tested temp temporary demo sample
example access account accounts enter entry open close service server system database oracle mysql postgres postgresql apache tomcat jenkins docker linux
ubuntu debian windows microsoft apple google facebook twitter instagram whatsapp youtube yahoo hotmail gmail amazon netflix spotify linkedin pinterest
adobe samsung motorola nokia toshiba lexmark compaq packard presario pavilion deskjet pentium logitech internet online network website webmaster computer
laptop keyboard mouse monitor printer software hardware program hacker hackers hacked cyber matrix digital gizmo gizmodo napster warcraft starcraft
qwerty qwertz azerty qwert qwertyu qwertyui qwertyuio qwertyuiop qwertyqwerty qwerty123 qwerty1234 qwe123 qweasd qweasdzxc qwaszx qweqwe qazwsx qazwsxedc
qazqaz qazxsw 1qaz2wsx 1qazxsw2 1qaz2wsx3edc zaq12wsx zaq1xsw2 zaq1zaq1 zxcvbn zxcvbnm zxcvb zxcv zxcasdqwe asdf asdfg asdfgh asdfghj asdfghjk asdfghjkl
asdfjkl asdfasdf asdasd asdqwe asd123 asdf1234 mnbvcx mnbvcxz lkjhgf lkjhgfdsa poiuytrewq poiuyt ytrewq trewq wasd wasdwasd 1q2w3e 1q2w3e4r 1q2w3e4r5t
1q2w3e4r5t6y q1w2e3 q1w2e3r4 q1w2e3r4t5 q1w2e3r4t5y6 1234qwer qwer1234 qwer 123qwe 123qweasd 123qwe123 qwe123qwe a1b2c3 a1b2c3d4 a1s2d3f4 abc123 abc12345
abc123456 abcd1234 1234abcd 123abc 123abc123 abcdef abcdefg abcdefgh abcd abcde abcabc aabbcc aabbccdd p@ssw0rd pa55word pa55w0rd passwor1 1passwor
drowssap wordpass mypass123 newpass6 trustno1 iloveyou iloveu iloveme iloveher iloveyou2 ilovemyself ilovejesus ilovegod imissyou loveyou loveme lovers
love lover lovely lovelove lovable loveable loveit loverboy lovergirl mylove onelove truelove firstlove babylove babygirl babyboy baby babydoll babyface
angel angels angelina angelica angelo angela heaven devil devils lucifer satan jesus jesuschrist christ christian christia god godbless godisgood blessed
blessing faith grace hope glory spirit prayer trinity miracle gospel church buddha allah islam krishna shiva sunshine sunrise sunset sunny sunday monday
tuesday wednesday thursday friday saturday january february march april june july august september october november december spring summer autumn winter
morning midnight tonight today tomorrow forever always never whatever whenever nothing something anything everything someone nobody everyone everybody
princess prince queen king kings kingdom kingkong kingston kingpin duke baron knight knights warrior warriors soldier marine marines trooper commando
commander captain general sergeant sniper hunter hunting shooter ranger rangers scout pirate pirates viking vikings samurai ninja shogun spartan spartans
gladiator trojan trojans titan titans hercules achilles apollo zeus athena hermes neptune poseidon mercury venus jupiter saturn pluto mars uranus
dragon dragons dragonball dragonfly phoenix unicorn pegasus griffin wizard warlock witch vampire werewolf zombie monster godzilla demon ghost phantom
shadow shadows darkness darkside darkstar darkknight blackbird blackcat blackdog blackjack blackman blackhawk blackbox blackrose blackwhite black white
green yellow orange purple violet indigo silver golden gold bronze copper platinum diamond diamonds crystal emerald sapphire ruby pearl amber jade scarlet
crimson rainbow colors color bluebird bluesky bluemoon blueeyes blueblue blue bluedog greenday greenbay redred redsox redskins redwings redbull redhead
redneck redalert reddog redrum redhot pinkfloyd pinky pink brown grey gray
monkey monkeys monkeyboy tiger tigers tigger lion lions lionking leopard panther panthers cougar jaguar cheetah bear bears wolf wolves wolfpack wolfgang
wolfman wolverine fox foxes firefox coyote bulldog bulldogs pitbull rottweiler dog doggy doggie dogs hotdog puppy puppies poodle beagle labrador retriever
husky huskies terrier dingo cat cats kitty kitten kittens kittycat pussycat tomcat bobcat wildcat wildcats catfish catdog mouse mice rabbit bunny hamster
gerbil ferret weasel badger beaver squirrel raccoon skunk possum otter walrus seal dolphin dolphins whale shark sharks octopus starfish jellyfish goldfish
salmon trout lobster shrimp turtle turtles tortoise snake snakes viper vipers cobra python rattler lizard iguana gecko crocodile alligator gator gators
eagle eagles falcon falcons hawk hawks hawkeye raven ravens crow robin cardinal cardinals bluejays parrot penguin penguins ostrich flamingo pelican
swan duck ducks goose chicken chickens rooster turkey turkeys horse horses horseman pony stallion mustang mustangs bronco broncos colt colts donkey mule
zebra giraffe elephant rhino hippo camel camels buffalo bison bull bulls cow cowboy cowboys cowgirl goat sheep lamb pig piggy piglet pigs frog froggy frogs
toad spider spiders spiderman scorpion scorpio butterfly butterfl butterflies ladybug beetle bumblebee hornet hornets wasp cricket grasshopper mosquito
ant ants worm snail animal animals kangaroo koala panda gorilla chimp dinosaur raptor raptors mammoth
baseball football footbal1 basketball basketba softball volleyball soccer hockey tennis golf golfer golfing golfball rugby lacrosse cricket boxing wrestling
wrestler swimming swimmer surfing surfer skating skater skateboard snowboard skiing skier running runner jogging marathon cycling bicycle biking fishing
fisherman hunting camping hiking sailing sailor sailboat racing racecar racer nascar formula formula1 motocross karate kungfu aikido taekwondo judo
gymnast gymnastics cheerleader athlete champion champions champs championship victory winner winners winning success sports sport player players playboy
playgirl playball playing playtime playstation xbox nintendo gameboy gamer gamers gaming game games pokemon pikachu charizard mario luigi sonic zelda link
minecraft fortnite roblox halflife counterstrike counter callofduty battlefield assassin assassins creed starwars startrek stargate enterprise voyager
skywalker lukeskywalker darthvader vader yoda hansolo chewbacca chewie obiwan anakin bobafett jedi sith sithlord millennium falcon1 spock picard klingon
superman batman robin1 ironman hulk thor captainamerica wonderwoman catwoman joker harleyquinn avenger avengers xmen punisher daredevil superhero superstar
superfly superstart supernova supersonic simpson simpsons homer bart marge lisa maggie cartman southpark kenny scooby scoobydoo snoopy garfield mickey
mickeymouse minnie donald donaldduck goofy disney disneyland bambi dumbo simba nala pumbaa timon aladdin jasmine ariel cinderella tinkerbell peterpan
pinocchio shrek fiona nemo dory woody buzz buzzlightyear hellokitty barbie spongebob patrick squidward popeye tweety tweetybird bugsbunny daffy sylvester
tazmania tasmanian roadrunner gandalf frodo legolas aragorn hobbit hobbits bilbo baggins tolkien middleearth morpheus trinity1 neo harrypotter potter
hermione dumbledore hogwarts gryffindor slytherin voldemort sherlock sherlockholmes holmes watson jamesbond bond007 goldeneye skyfall terminator predator
rocky rambo robocop indiana indianajones jurassic titanic gladiator1 braveheart scarface godfather goodfellas corleone pulpfiction avatar naruto sasuke
sakura itachi goku vegeta bleach onepiece evangelion gundam inuyasha totoro
newyork newyorker yankees yankee mets giants jets knicks rangers1 brooklyn manhattan bronx queens chicago bears1 cubs bulls1 whitesox blackhawks boston
celtics bruins patriots losangeles lakers dodgers kings1 angels1 clippers sanfrancisco fortyniners 49ers raiders athletics oakland sandiego chargers padres
dallas cowboys1 mavericks texas texans houston rockets astros sanantonio spurs austin longhorn longhorns aggies oklahoma sooners sooner thunder detroit
pistons redwing cleveland browns cavaliers indians pittsburgh steelers steeler pirates1 philadelphia phillies flyers eagles1 sixers washington wizards
nationals capitals baltimore orioles miami heat marlins hurricanes orlando magic tampa buccaneers lightning atlanta braves hawks1 carolina tarheels tarheel
charlotte hornets1 tennessee titans1 memphis grizzlies nashville predators louisville kentucky indiana1 pacers hoosier hoosiers ohio buckeye buckeyes
cincinnati bengals reds michigan wolverines spartans1 wisconsin packers packer badgers brewers minnesota twins timberwolves vikings1 nebraska huskers
cornhuskers husker kansas jayhawk jayhawks missouri stlouis rams blues denver rockies nuggets colorado avalanche arizona phoenix1 suns diamondbacks coyotes
utah jazz nevada lasvegas vegas oregon portland blazers trailblazers seattle mariners seahawks sonics alaska hawaii rainbow1 california california1
florida seminole seminoles georgia alabama crimsontide rolltide auburn mississippi louisiana neworleans saints arkansas razorback virginia maryland
delaware jersey newjersey connecticut vermont maine hampshire montana idaho wyoming dakota america american americano usa123 canada canadian toronto
mapleleafs montreal canadiens vancouver canucks calgary flames edmonton oilers ottawa senators mexico mexican mexico1 brazil brasil brazilian argentina
chile colombia peru venezuela ecuador bolivia uruguay paraguay cuba jamaica jamaican puertorico panama costarica england english london london1 british
britain scotland scottish ireland irish wales welsh dublin belfast edinburgh glasgow manchester manchester1 manutd manunited manchest liverpool liverpoo
liverpool1 arsenal arsenal1 chelsea chelsea1 tottenham tottenha everton westham newcastle leeds leedsunited astonvilla celtic rangersfc sunderland
portsmouth birmingham bristol oxford cambridge brighton france french paris marseille lyon bordeaux germany german deutschland berlin hamburg munich
bayern dortmund schalke frankfurt cologne austria vienna switzerland zurich geneva italy italia italian rome roma milan milano juventus inter napoli
torino lazio venice florence sicily spain espana spanish madrid realmadrid barcelona barcelon barca valencia sevilla portugal lisbon lisboa benfica porto
sporting greece athens olympia holland amsterdam ajax feyenoord belgium brussels denmark copenhagen sweden stockholm norway oslo finland helsinki iceland
poland polska warsaw warszawa krakow russia russian moscow moskva spartak dynamo ukraine kiev czech prague hungary budapest romania bucharest bulgaria
serbia belgrade croatia slovenia turkey1 istanbul galatasaray fenerbahce besiktas israel jerusalem egypt cairo morocco africa african southafrica nigeria
lagos kenya ghana ethiopia china chinese beijing shanghai hongkong taiwan japan japanese tokyo osaka kyoto korea korean seoul vietnam hanoi saigon
thailand bangkok malaysia singapore indonesia jakarta bali philippines manila pilipinas india indian bombay mumbai delhi chennai bangalore pakistan
karachi lahore bangladesh srilanka nepal afghanistan iran iraq dubai arabia lebanon syria jordan australia aussie sydney melbourne brisbane perth
newzealand kiwi fiji antarctica atlantis europe european asia asian world earth global universe galaxy cosmos planet moon moonlight star stars starlight
stardust starfire starship startup rockstar shootingstar comet meteor eclipse solar lunar orion sirius andromeda aquarius aries taurus gemini cancer
leo virgo libra scorpius sagittarius capricorn pisces horoscope zodiac
ferrari porsche lamborghini mercedes benz bmw audi volkswagen volvo toyota honda nissan mazda subaru suzuki mitsubishi hyundai lexus infinity acura
chevy chevrolet chevelle corvette camaro impala cadillac pontiac firebird transam buick oldsmobile chrysler dodge dodgeram viper1 charger challenger
jeep wrangler cherokee ford fordf150 mustang1 explorer ranger2 bronco1 fiesta focus escort thunderbird lincoln jaguar1 landrover rover bentley
rollsroyce astonmartin maserati alfaromeo fiat peugeot renault citroen clio golfgti jetta passat beetle1 civic accord prelude integra corolla camry celica
supra maxima altima skyline silvia impreza lancer eclipse1 kawasaki yamaha ducati harley harleydavidson davidson hummer truck trucks trucker trucking
tractor bigtruck turbo hotrod racer1 driver driving engine diesel gasoline airplane airbus boeing cessna pilot airforce airborne aviation helicopter
spitfire submarine navy seals army military usmc semperfi devildog infantry paratrooper veteran police fireman firefighter firefly fireball firebird1
michael michael1 michelle michele micheal mike mikey mickey1 mitchell miguel james james1 jamie jason jason1 jasper jack jackson jacky jackie jacob jake
jeremy jeremiah jeffrey jeff jerry jerome jesse jessica jessica1 jessie jennifer jennifer1 jenny jenna jeannie jeanette joan joanna joanne john johnny
johnson johnjohn johnathan jonathan jonathon jordan1 jordan23 joseph josephine joshua joshua1 josh juan juanita judith judy julia julian juliana julie
juliet juliette julio julius justin justin1 justine justice karen karina karl kate katherine kathleen kathryn kathy katie katrina kayla keith kelly
kelsey kenneth kevin kevin1 kimberly kim kristen kristin kristina kristine kristy kyle larry laura lauren laurie lawrence leah lee leonard leonardo leslie
lewis liam lillian lily linda lindsay lindsey lisa1 logan lorenzo lorraine louis louise lucas lucia lucy luis luke lynn mackenzie madeline madison maggie1
marcus marcel marco margaret maria mariah mariana marie marilyn marina marion marissa mark markus marlene marshall martha martin martina martinez marvin
mary maryjane mason mathew matt matthew matthew1 maurice max maxwell maximus maxine megan meghan melanie melinda melissa melody melvin mercedes1 meredith
mia mindy miranda miriam molly monica monika monique morgan morris muhammad mohammed mohamed ahmed murphy myles nadia nadine nancy naomi natalia natalie
natasha nathalie nathan nathaniel neil nelson nicholas nick nicola nicolas nicole nicole1 nikita nikki nina noah norman olivia oliver omar oscar owen
pamela pascal patricia patrick1 patty paul paula pauline pedro penelope penny peter phil philip phillip phillips phoebe pierre priscilla rachel rachael
ralph ramona randall randy raquel raymond rebecca regina renee rhonda ricardo richard richard1 rick ricky riley rita robert robert1 roberto roberts
robin2 robinson rodney rodrigo roger roland roman ronald ronaldo ronnie rosa rose rosemary rosie ross roxanne roy russell ruth ryan sabrina sally sam
samantha sammy samson samuel sandra sandy sara sarah sarah1 sasha savannah scott scotty sean sebastian serena sergio shane shannon sharon shaun shawn
sheila shelby shelley shelly sherry shirley sidney simon simone sonia sophia sophie stacey stacy stanley stella stephanie stephani stephen steve steven
stevens stewart stuart sue susan suzanne sylvia tamara tammy tanya tara tasha taylor ted teresa terry thelma theodore theresa thomas thomas1 thompson
tiffany tim timothy tina todd tom tommy tony tracey tracy travis trevor tristan troy tyler tyrone tyson valentina valentine valerie vanessa vera vernon
veronica vicki vicky victor victoria vincent violet1 virginia1 vivian wallace walter wanda warren wayne wendy wesley whitney william william1 williams
willie wilson winston xavier yolanda yvonne yvette zachary zoe aaron abby abigail adam adams adrian adriana aidan aiden alan albert alberto alejandra
alejandro alex alexa alexander alexande alexandra alexandr alexandria alexis alfred alfredo alice alicia alison allen allison alyssa amanda amanda1 amelia
amy ana andrea andreas andres andrew andrew1 andrey andy angie anita anna annabelle anne annette annie anthony anthony1 antonio antonia april1 arnold
arthur ashley ashley1 ashton audrey austin1 ava barbara barney barry beatrice becky belinda bella ben benjamin benny bernard bernie beth bethany betty
beverly bianca bill billy billybob bob bobby bonnie brad bradley brady brandi brandon brandon1 brandy brenda brendan brent brett brian brianna bridget
britney brittany brittney brooke brooks bruce bruno bryan bryant caitlin caleb calvin cameron camila camille carl carla carlos carmen carol carolina1
caroline carolyn carrie carter casey cassandra cassidy cassie catherine cathy cecilia celeste celine chad charlene charles charlie charlie1 charlotte1
chelsea2 cheryl chester chloe chris chrissy christia1 christian1 christin christina christine christop christopher christy cindy claire clara clark
claude claudia clayton clifford clinton cody colin colleen connie connor conrad corey courtney craig cristian cristiano cristina crystal1 curtis cynthia
daisy dale dana daniel daniel1 daniela danielle danny dante darlene darrell darren darryl dave david david1 dawn deanna debbie deborah debra dennis
denise derek derrick desiree destiny diana diane diego dominic dominique donna dorothy douglas drew duncan dustin dwayne dylan eddie edgar eduardo
edward edwards edwin eileen elaine eleanor elena elias elijah elizabeth elizabet ella ellen elliot elliott emily emma emmanuel enrique eric erica erik
erika erin ernest esteban esther ethan eugene eva evan evelyn faith1 felicia felipe felix fernanda fernando flora florence1 frances francesca francis
francisco frank frankie franklin fred freddy frederic frederick gabriel gabriela gabriella gabrielle garrett gary gavin gene geoffrey george georgia1
gerald gerard gilbert gina ginger giovanni gladys glen glenn gloria gordon grace1 graham grant greg gregory gretchen guillermo gustavo hailey hannah
harold harriet harris harrison harry harvey hayden hayley heather heidi helen helena henry herbert herman holly howard hugo hunter1 ian ignacio irene iris
isaac isabel isabella isabelle isaiah ivan
flower flowers rosebud orchid tulip lilly sunflower jasmin daisy1 blossom garden forest jungle river rivers ocean oceans beach beaches island mountain
mountains valley desert prairie canyon waterfall water fire earthquake tornado hurricane hurrican tsunami volcano lightnin thunder1 thunderstorm storm
stormy snow snowball snowman snowflake blizzard rain raindrop rainy cloud clouds cloudy wind windy breeze ice iceman iceberg icecream frost frosty
cheese cookie cookies chocolate chocolat vanilla strawberry banana bananas apple1 apples orange1 oranges lemon lemons cherry cherries peach peaches grape
grapes mango papaya pineapple pineappl coconut watermelon melon berry blueberry raspberry pumpkin potato tomato carrot onion garlic pepper peppers pickle
pickles peanut peanuts popcorn pretzel muffin cupcake brownie pancake waffle biscuit cracker candy candyman lollipop bubblegum gummybear snickers skittles
twix kitkat oreo doughnut donut sugar sweet sweets sweety sweetie sweetheart sweetpea sweetness honey honeybee honeybun bacon burger hamburger cheeseburger
pizza pasta spaghetti noodle noodles meatball meatloaf sausage steak chicken1 turkey2 taco tacos tacobell burrito nachos sushi sandwich butter buttercup
butters buttons coffee espresso mocha latte starbucks tequila whiskey vodka beer beerbeer guinness budweiser budweise budlight heineken corona coors
jackdaniels captainmorgan champagne wine cocacola coke cola dietcoke pepsi pepsicola drpepper sprite fanta mountaindew gatorade juice milkshake water1
guitar guitars guitarist bassman drummer drums piano violin trumpet trombone clarinet saxophone flute music musicman musical musician singer singing
song songs dance dancer dancing disco techno trance hiphop rapper rocknroll rockandroll rocker rockon punkrock metal metallica metallic megadeth slayer
slipknot korn nirvana pearljam soundgarden greenday blink182 linkinpark linkin limpbizkit eminem tupac biggie snoopdog jayz beyonce rihanna shakira
madonna britneyspears justinbieber bieber onedirection directioner beatles beatle thebeatles rollingstones rolling ledzeppelin zeppelin ledzep aerosmith
acdc kiss queen1 u2 coldplay radiohead oasis blur muse placebo depeche depechemode thecure rammstein ironmaiden iron maiden blacksabbath ozzy deeppurple
vanhalen bonjovi gunsnroses guns roses motley poison evanescence nightwish system1 systemofadown deftones incubus tool toolband pantera sepultura sublime
bobmarley marley reggae rasta elvis elvispresley sinatra hendrix jimihendrix clapton santana lennon johnlennon mozart beethoven bach chopin vivaldi
freedom freedom1 liberty justice1 peace peaceful peacelove hippie happy happiness happyday smile smiley smiles laughter funny funtime joyful lucky
luckyone luckydog goodluck fortune money money1 moneymaker cash dollar dollars euro million millionaire billionaire rich bank banker bitcoin ethereum
dogecoin blockchain crypto business marketing finance office boss bigboss theboss company student teacher school college university graduate science
biology chemistry physics history english1 math mathematics engineer engineering doctor nurse dentist lawyer hospital medical medicine pharmacy surgeon
mother father mommy daddy mamma mama papa mom dad momdad momanddad mummy brother brothers sister sisters sissy family myfamily children child kids son
daughter grandma grandpa granny uncle auntie aunt cousin nephew niece husband wife married wedding single divorced friend friends friendly bestfriend
bestfriends bestie buddy buddies girl girls girly girlfriend boy boys boyfriend man men woman women lady ladies gentleman mister missy mistress
handsome beautiful beauty pretty gorgeous cutie cuties cutiepie adorable sexy sexygirl sexyboy sexylady hottie hotstuff hotgirl sexual naughty horny
bigdaddy bigdog bigboy bigman bigmac bigred bigmoney bigone bigguy bigfoot bigbird bigbear bigtime biggirl littleone little littleman shorty fatboy
fatcat skinny crazy crazyboy crazygirl psycho insane maniac madman madness madmax maddog mad wild wildchild wildman freak freaky weird weirdo nerd geek
dork loser losers stupid stupid1 dummy idiot moron dumbass asshole bastard bitch bullshit shithead dickhead jackass badass badboy badgirl baddog
fuckyou fuckoff fuckme fuckit motherfucker kissmyass eatme biteme blowme suckit screwyou getlost goaway shutup whocares idontknow idontcare noidea
dontknow forgetit forgot iforgot remember rememberme reminder helpme help helper please thankyou thanks sorry excuse hello hello1 hello123 hellohello
hallo halo hola bonjour ciao aloha namaste goodbye goodday goodmorning goodnight byebye seeyou whatsup howareyou heythere
killer killers kill murder death deathnote deadman deadpool undead zombies zombie1 blood bloody vampires horror nightmare scream evil evildead hell
hellfire hellboy hellyeah inferno chaos anarchy rebel rebels rebellion renegade outlaw bandit gangster gangsta mafia thug thuglife hustler pimp pimpin
player1 baller ballers ballin rapgod killer1 assassin1 hitman bulletproof bullet bullets shotgun gunner gunners pistol rifle magnum smith wesson glock
weapon bomber bomb nuclear atomic missile rocket rocketman rockets1 laser cannon tank tanks panzer cavalier crusader excalibur excalibu lancelot camelot
arthur1 merlin avalon robinhood zorro tarzan conan barbarian hercule spartacus caesar cleopatra alexander1 napoleon einstein newton darwin galileo
davinci michelangelo picasso vangogh rembrandt shakespeare socrates plato aristotle
patience wisdom knowledge courage strength strong power powers powerful energy dynamite explosion passion desire destiny1 dream dreams dreamer dreaming
dreamland imagine imagination inspire inspiration creative creation creator genius brilliant smart clever perfect perfection excellent awesome amazing
fantastic fantasy fantasia wonder wonderful wonderland magic1 magical magician mystery mystic mystical enigma secret1 riddle puzzle eternity eternal
infinity1 forever1 legend legends legendary legacy hero heroes epic ultimate extreme xtreme maximum minimum optimus optimusprime prime transformers megatron
bumblebee1 supreme superior elite alpha omega beta gamma delta sigma zulu tango foxtrot bravo charlie2 echo victor1 whiskey1 xray yankee1
classic vintage retro modern future past present history1 time timeless timemachine clock watch camera photo photos picture pictures video movie movies
cinema theater actor actress hollywood broadway artist artists paint painter painting drawing design designer fashion model models style stylish
travel traveler traveller vacation holiday holidays journey adventure adventures explore voyage cruise resort hotel airport station subway street avenue
bridge tower castle palace temple pyramid house home homer1 homerun sweethome cottage cabin garden1 kitchen bedroom bathroom window windows1 door doors
table chair pencil paper book books bookworm reader writer library letter letters number numbers alphabet word words message secretword magicword
birthday happybirthday christmas xmas merrychristmas santa santaclaus rudolph reindeer easter halloween thanksgiving newyear newyears valentin valentines
xxxxxx xxxx xxxxxxxx zzzzzz aaaaaa abc123abc 147258369 159753 159357 147852 147852369 741852963 789456123 789456 123789 123654 123654789 456123 456789
987654 112233 11223344 1122334455 121212 12121212 131313 123123 123123123 12341234 123321 1234321 12344321 232323 252525 696969 69696969 787878 898989
101010 10101010 102030 10203040 010203 01020304 1a2b3c 1a2b3c4d aa123456 a123456 a12345678 a123456789 123456a 123456789a 12345678a 1234567q q123456 w123456
x123456 z123456 woaini woaini1314 woaini520 5201314 520520 1314520 7758521 7758258 31415926 3141592654 27182818 8675309 90210 19841984 20002000 20012001
20022002 20202020 20212021 20222022 20232023 20242024 20252025 20262026 12011990 11111990 01011990 01011980 01012000 ncc1701 ncc1701d ncc1701e thx1138
rush2112 21122112 51505150 jordan45 kobe24 lebron23 messi10 ronaldo7 cr7 neymar10 beckham7 giggs11 rooney10 maradona pele zidane kaka henry14 gerrard8
trestle trestle1
`;
